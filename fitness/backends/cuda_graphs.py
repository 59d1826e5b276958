"""Calls captured in CUDA graphs, so that what is timed is the device's work and never the host's."""

from collections.abc import Callable

import torch

_ROOM = 0.25  # of the device's memory; a capture needs an output and what its call takes in passing


class GraphMaker:
    """Captures calls on one stream of a device.

    Each graph has a pool of memory to itself. Torch keeps the pools of graphs that are gone until memory runs out
    outside of a capture; inside one it fails, which a search comes to after some dozens of candidates. So a capture
    begins with at least `room` of the device's memory free, where giving back what is not in use brings that about.
    """

    def __init__(self, device: torch.device, *, room: float = _ROOM) -> None:
        self._device = device
        self._room = room
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch publishes no type for it

    def rehearse(self, call: Callable[[], object]) -> None:
        """Make a call once, for what it compiles or allocates once must not be captured."""
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            call()
        self._stream.synchronize()

    def capture(self, call: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """The call in a graph. (torch.cuda.graph would collect garbage and empty the allocator's cache every time.)"""
        self._make_room()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                call()
            finally:
                graph.capture_end()
        torch.cuda.synchronize()
        return graph

    def _make_room(self) -> None:
        free, total = torch.cuda.mem_get_info(self._device)
        if free < self._room * total:
            torch.cuda.empty_cache()
