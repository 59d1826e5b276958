"""One file a command of the console script."""
