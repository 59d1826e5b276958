"""TensorBoard's event files, written by torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

_open_writer: Any = SummaryWriter  # some versions of torch publish types for these two, and some do not
_as_hparams: Any = hparams


class TensorBoard:
    """One folder of event files. Each part of a run writes a file of its own, and TensorBoard draws them as one."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self._writer = _open_writer(str(folder))
        experiment, start, self._end = _as_hparams(dict(settings), {"geomean/best": 0.0})
        for summary in (experiment, start):
            self._writer.file_writer.add_summary(summary)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """A scalar each, on disk when this returns."""
        for name, figure in figures.items():
            self._writer.add_scalar(name, figure, step)
        self._writer.flush()

    def close(self) -> None:
        """Finish the file."""
        self._writer.file_writer.add_summary(self._end)
        self._writer.close()
