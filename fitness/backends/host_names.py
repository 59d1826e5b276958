"""The names of a binary's variables as a source spells them."""

import os
import shutil
import subprocess
from collections.abc import Sequence

from fitness.child_environment import listed_environment

# A name takes a few bytes in a binary and may take gigabytes in words: a type that is nested thirty times in itself.
_LIMITED = '{ ulimit -v 60000; ulimit -t 2; } 2> /dev/null; exec "$@"'
_OURS = "(anonymous namespace)::"


def demangled(names: Sequence[str]) -> list[str]:
    """The names in the words of C++; as the binary has them where there is no c++filt, or that would take too much."""
    tool = shutil.which("c++filt")
    if tool is None or not names:
        return list(names)
    done = subprocess.run(  # noqa: S603  # binutils' own; the names come by stdin
        ("/bin/sh", "-c", _LIMITED, "sh", tool), input="\n".join(names), capture_output=True, text=True, check=False,
        env={**listed_environment(os.environ), "LC_ALL": "C"},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    if done.returncode != 0 or len(lines) != len(names):
        return list(names)
    return [line.removeprefix(_OURS) for line in lines]
