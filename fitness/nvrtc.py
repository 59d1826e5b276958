"""NVRTC inside a child process: sources go in, a cubin and a log come out, and the compiler opens no file.

Headers are handed over as text, and the process gives up the right to open files, so that no source can draw the text
of a file into a message, by whatever trick of the preprocessor it spells its `#include`.
"""

import hashlib
import re
import resource
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fitness.compile_log import CANDIDATE_FILE
from fitness.process import Done, Progress

CONTRACT_HEADER = "attention.cuh"
_CUDA_HEADERS = ("cuda_bf16.h", "cuda_fp16.h")
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)
_NO_CACHE = "--no-cache"  # from the cache NVRTC answers without a log; versions without it refuse the option
_LOG_CHARACTERS = 1 << 20  # the name of a nested type alone may take gigabytes, and so may a warning at every call
_MAX_BYTES = 64 << 20  # of a cubin and its PTX; those of an honest kernel have a few MiB
_PROBE = f'#include "{CONTRACT_HEADER}"\nextern "C" __global__ void probe(AttentionParams p) {{ *p.lse = 0; }}'


def options_for(arch: str) -> tuple[str, ...]:
    """Every option but the -D flags. No fast math: a candidate asks for approximations by name."""
    return ("-std=c++17", "-default-device", f"-arch={arch}", "--ptxas-options=-v")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a compiling process is started with."""

    contract_header: str
    options: tuple[str, ...]  # all but the -D flags


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """What compiles here, or why nothing does."""

    version: str = ""  # "13.0.88"
    headers_sha256: str = ""  # of CUDA's headers and the contract's
    problem: str = ""


class Describe:
    """The request for the Toolchain."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A source with its -D flags, and the seconds that compiling it may take."""

    source: str
    defines: tuple[str, ...]
    timeout_s: float


@dataclass(frozen=True, kw_only=True)
class Product:
    """What came of a job: a cubin, or NVRTC's name for the failure. The log is about either."""

    log: str
    failure: str = ""
    cubin: bytes = b""
    ptx: str = ""


def serve(setup: Setup, connection: Connection) -> None:
    """Answer Describe with the Toolchain and each Job with its Product; with the Toolchain where it has a problem."""
    try:
        compiler = _Nvrtc(setup)
        toolchain = compiler.describe()
    except (ImportError, RuntimeError) as error:
        toolchain = Toolchain(problem=f"{type(error).__name__}: {error}")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # what is open stays open; nothing else can be opened
    while True:
        request = connection.recv()
        if toolchain.problem or not isinstance(request, Job):
            connection.send(Done(toolchain))
        else:
            connection.send(Progress("compiling", deadline_s=request.timeout_s))
            connection.send(Done(compiler.compile(request.source, request.defines)))


class _Nvrtc:
    """NVRTC with the headers that a source may include."""

    def __init__(self, setup: Setup) -> None:
        from cupy.cuda import nvrtc

        self._nvrtc: Any = nvrtc
        self._options = (*setup.options, _NO_CACHE)
        self._headers = _cuda_headers() | {CONTRACT_HEADER: setup.contract_header}

    def describe(self) -> Toolchain:
        """The compiler's version, from a source that includes all headers. Raises RuntimeError where that fails."""
        product = self.compile(_PROBE, ("-DEVO_BF16=1",))
        if "INVALID_OPTION" in product.failure:
            self._options = self._options[:-1]
            product = self.compile(_PROBE, ("-DEVO_BF16=1",))
        version = re.search(r"release [\d.]+, V([\d.]+)", product.ptx)
        if version is None:
            raise RuntimeError(f"NVRTC does not compile a minimal kernel: {product.failure} {product.log[:2000]}")
        digest = hashlib.sha256()
        for name, text in sorted(self._headers.items()):
            digest.update(f"{name} {len(text)}\n{text}".encode())
        return Toolchain(version=version[1], headers_sha256=digest.hexdigest())

    def compile(self, source: str, defines: Sequence[str]) -> Product:
        """The product of one source."""
        nvrtc = self._nvrtc
        texts = [text.encode() for text in self._headers.values()]
        names = [name.encode() for name in self._headers]
        program = nvrtc.createProgram(source, CANDIDATE_FILE, texts, names)
        try:
            nvrtc.compileProgram(program, [*self._options, *defines])
        except nvrtc.NVRTCError as error:
            return Product(log=self._log(program)[:_LOG_CHARACTERS], failure=str(error))
        else:
            log, cubin, ptx = self._log(program), nvrtc.getCUBIN(program), nvrtc.getPTX(program)
            if (size := len(cubin) + len(ptx)) > _MAX_BYTES:
                return _too_large(f"its code and tables have {size >> 20} MiB", _MAX_BYTES >> 20)
            if len(log) > _LOG_CHARACTERS:
                return _too_large(f"what the compiler warns of has {len(log)} characters", _LOG_CHARACTERS)
            return Product(log=log, cubin=_whole(cubin), ptx=ptx.decode(errors="replace"))
        finally:
            nvrtc.destroyProgram(program)

    def _log(self, program: int) -> str:
        """What the compiler says, which may quote bytes of a source's literals that are no text."""
        try:
            log: str = self._nvrtc.getProgramLog(program)
        except UnicodeDecodeError as error:
            return error.object.decode(errors="replace")
        return log


def _too_large(found: str, most: int) -> Product:
    return Product(log=f"{CANDIDATE_FILE}(1): error: {found}; at most {most} are allowed", failure="too large")


def _whole(cubin: bytes) -> bytes:
    """The cubin with its last byte, a zero, which CuPy cuts off as a text's end: drivers do without, cuobjdump not."""
    (start,) = struct.unpack_from("<Q", cubin, 32)  # e_phoff, then e_phentsize and e_phnum
    size, count = struct.unpack_from("<HH", cubin, 54)
    return cubin.ljust(start + size * count, b"\0")


def _cuda_headers() -> dict[str, str]:
    """The 16-bit float headers with all that they include. Raises RuntimeError where they are not installed."""
    folders = list(_include_folders())
    for folder in folders:
        if all((folder / name).is_file() for name in _CUDA_HEADERS):
            return _with_includes(folder, _CUDA_HEADERS)
    raise RuntimeError(
        f"{_CUDA_HEADERS[0]} is in none of {', '.join(map(str, folders))}; "
        "install nvidia-cuda-runtime (nvidia-cuda-runtime-cu12), or set CUDA_PATH to a toolkit"
    )


def _include_folders() -> Iterator[Path]:
    """Where CUDA's headers may lie: beside the NVRTC in use, in the wheels, in a toolkit."""
    import cupy

    if root := cupy.cuda.get_cuda_path():
        yield Path(root) / "include"
    wheels = find_spec("nvidia")
    for folder in (wheels and wheels.submodule_search_locations) or ():
        yield from sorted(Path(folder).glob("*/include"))
    yield Path("/usr/local/cuda/include")


def _with_includes(folder: Path, names: Sequence[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    wanted = list(names)
    while wanted:
        name = wanted.pop()
        if name not in texts and (folder / name).is_file():
            texts[name] = (folder / name).read_text(errors="replace")
            wanted.extend(_INCLUDE.findall(texts[name]))
    return texts
