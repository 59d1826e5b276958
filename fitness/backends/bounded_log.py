"""What another program writes, as far as it is worth keeping."""

import os
import threading
from typing import Self

_CHUNK = 1 << 16


class BoundedLog:
    """The first `most` bytes that come to `writer`, a file descriptor for the program's output.

    The rest is read and dropped, so that the program never waits and nobody's memory fills.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = bytearray()

    def __enter__(self) -> Self:
        self._reader, self.writer = os.pipe()
        self._open = True
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def text(self) -> str:
        """What was kept, once all who write have ended; nothing can be written after."""
        self._end()
        return self._kept.decode(errors="replace")

    def _end(self) -> None:
        if self._open:
            self._open = False
            os.close(self.writer)
            self._thread.join()

    def _drain(self) -> None:
        with os.fdopen(self._reader, "rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK):
                self._kept += chunk[: self._most - len(self._kept)]
