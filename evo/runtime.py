"""A kernel file in use, without a search: from a path to an operator that torch knows.

    attention = load_kernel("kernels/seed/mma.cu")
    o, lse = attention(q, k, v, causal=True)
"""

import functools
import hashlib
import os
from pathlib import Path

import torch

from evo.data import cache_folder, include_folder, kernel_path, shipped_names
from fitness.faults import EnvironmentFault, invalid
from fitness.manifest import Manifest, read_manifest
from fitness.planner import plan_builds
from fitness.rules import check_rules
from fitness.runtime.attention_operator import AttentionOperator, Device
from fitness.runtime.build_apart import BuilderApart
from fitness.scenario import Suite


def load_kernel(path: str | Path, *, cache: str | Path | None = None) -> AttentionOperator:
    """The kernel of a `.cu` file, or the shipped one of that name, as an operator; the same text gives the same one.

    Needs no GPU until it is called. `cache` is the folder in which builds are kept from process to process; None: that
    of the searches. Raises OSError where the file cannot be read, CandidateFault for a source that is no candidate,
    EnvironmentFault for a `cache` that is a file.
    """
    try:
        source = kernel_path(str(path)).read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        expected = f"expected a .cu file, or the name of a shipped kernel: {shipped_names()}"
        raise FileNotFoundError(error.errno, f"{error.strerror}; {expected}", str(path)) from error
    except UnicodeDecodeError as error:
        raise invalid(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    folder = cache_folder(None if cache is None else str(cache), os.environ).absolute()
    if folder.exists() and not folder.is_dir():
        raise EnvironmentFault(f"cache={folder}: this is a file; expected a folder, which need not be there yet")
    return _operator(source, folder)


@functools.cache  # a name is registered with torch once in a process
def _operator(source: str, cache: Path) -> AttentionOperator:
    manifest = read_manifest(source)
    check_rules(source, manifest)
    builder = BuilderApart(source=source, include_dir=include_folder(), cache=cache)
    digest = hashlib.sha256(f"{cache}\0{source}".encode()).hexdigest()
    return AttentionOperator(
        f"evo::attention_{digest[:16]}",
        functools.partial(_open_device, manifest, builder),
        check=lambda scenario: plan_builds(manifest, Suite(name="call", scenarios=(scenario,))),
    )


def _open_device(manifest: Manifest, builder: BuilderApart, device: torch.device) -> Device:
    if device.type != "cuda":
        there = "" if torch.cuda.is_available() else f", and torch {torch.__version__} finds none here"
        raise EnvironmentFault(f"the tensors are on {device}; the kernel needs an NVIDIA GPU{there}")
    try:
        from fitness.runtime.cuda_device import CudaDevice  # cuda.bindings, which only GPU machines have
    except ImportError as error:
        raise EnvironmentFault(f"{error}; install it with: pip install cuda-bindings cupy-cuda13x") from error
    return CudaDevice(manifest, builder.build, device)
