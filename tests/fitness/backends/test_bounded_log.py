"""How much is kept of what another program writes."""

import subprocess
import sys

from fitness.backends.bounded_log import BoundedLog


def test_the_beginning_is_kept_and_the_program_is_not_kept_waiting():
    with BoundedLog(10) as log:
        program = "import sys; sys.stderr.write('0123456789' * 100000)"
        done = subprocess.run((sys.executable, "-c", program), stderr=log.writer, check=False)
        assert (done.returncode, log.text()) == (0, "0123456789")


def test_what_is_short_is_kept_whole_and_what_is_no_text_is_told_as_such():
    with BoundedLog(100) as log:
        subprocess.run(("/bin/sh", "-c", "printf 'a\\377b' >&2"), stderr=log.writer, check=True)
        assert log.text() == "a\ufffdb"
        assert log.text() == "a\ufffdb"


def test_nobody_needs_to_write_or_to_ask():
    with BoundedLog(100) as log:
        pass
    assert log.text() == ""
