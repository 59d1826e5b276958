"""`python -m evo` is the console script."""

from evo.cli import main

if __name__ == "__main__":
    main()
