"""The stamps of a kernel on the GPU: a variable of its module, which fitness/stamped_ptx.py put there."""

import cupy
import numpy as np
import numpy.typing as npt
import torch

from fitness.clocked import NEVER
from fitness.stamped_ptx import MOST_SMS, STAMPS, WORDS


class CudaStamps:
    """Those of one loaded module. Raises CuPy's CUDADriverError where it has none."""

    def __init__(self, module: cupy.RawModule, device: torch.device) -> None:
        self._words = cupy.ndarray((MOST_SMS, WORDS), dtype=cupy.int64, memptr=module.get_global(STAMPS))
        self._device = device
        self._clear = np.zeros((MOST_SMS, WORDS), dtype=np.int64)
        self._clear[:, 0::2] = NEVER

    @property
    def peak_mhz(self) -> float:
        """The greatest rate of the device's SMs."""
        runtime = cupy.cuda.runtime
        return float(runtime.deviceGetAttribute(runtime.cudaDevAttrClockRate, self._device.index)) / 1000

    def clear(self) -> None:
        """As before any call."""
        torch.cuda.synchronize()
        self._words.set(self._clear)
        torch.cuda.synchronize()

    def read(self) -> npt.NDArray[np.int64]:
        """Those of the last call, `[MOST_SMS, WORDS]`."""
        torch.cuda.synchronize()
        return np.asarray(self._words.get())
