"""A compile cache on a disk that is full, or that takes no writes: the machine's fault in one line, and no half build.

The disks are real: file systems of 64 KiB in a mount namespace of the test's own, where the system allows one.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fitness.build_cache import BuildCache
from fitness.evaluation import BuildReport, Status
from fitness.faults import CandidateFault, EnvironmentFault

INCLUDE = Path(__file__).parents[2] / "kernels" / "include"
REPORT = BuildReport(name="all", kernels=(), advisories=())
ADVICE = "free some space there, make it writable, or name another folder"
NOBODY = 65534

ROOM = """
from fitness.build_cache import BuildCache
from fitness.evaluation import BuildReport
from fitness.faults import EnvironmentFault
cache, report = BuildCache(folder), BuildReport(name="all", kernels=(), advisories=("x" * 3000,))
told = []
for pages in range(5):  # nothing fits, then half of the binary, then the binary, then half of its record, then all
    for path in folder.iterdir():
        path.unlink()
    filler = folder / "filler"
    filler.write_bytes(bytes((16 - pages) << 12))
    try:
        cache.keep("b" * 64, bytes(8192), report)
    except EnvironmentFault as fault:
        told.append(str(fault))
    kept = cache.get("b" * 64)
    whole = kept is not None and kept[0].read_bytes() == bytes(8192) and kept[1] == report
    print(pages, whole, sorted(path.suffix for path in folder.iterdir() if path != filler))
    if pages in (0, 1):
        filler.unlink()
        print(cache.keep("b" * 64, bytes(8192), report).stat().st_size)
print(*dict.fromkeys(told), sep="\\n")
"""
NVRTC = """
from fitness.build_cache import BuildCache
from fitness.compiler import NvrtcCompiler
from fitness.faults import EnvironmentFault
from fitness.fork_server import start_fork_server
from fitness.plan import Build
from fitness.scenario import ElementType
builds = (Build(defines=(), element_type=ElementType.BF16),)
source = '''__constant__ char table[60000] = {1};
extern "C" __global__ void k(char* o, int i) { o[0] = table[i]; }
'''
start_fork_server()
filler = folder / "filler"
filler.write_bytes(bytes(9 << 12))
compiler = NvrtcCompiler(
    arch="sm_90a", include_dir=include, cache=BuildCache(folder), processes=1, timeout_s=60.0, memory_bytes=4 << 30
)
try:
    compiler.compile(source, builds)
except EnvironmentFault as fault:
    print(fault)
print([path.name for path in folder.iterdir()])
filler.unlink()
[built] = compiler.compile(source.replace("60000", "30000"), builds)
print(built.binary.read_bytes()[:4], [each.kernel for each in built.report.kernels])
compiler.close()
"""
KEEP = """
from fitness.build_cache import BuildCache
from fitness.evaluation import BuildReport, Status
from fitness.faults import CandidateFault, EnvironmentFault
cache = BuildCache(folder)
for keep in (
    lambda: cache.keep("a" * 64, b"binary", BuildReport(name="all", kernels=(), advisories=())),
    lambda: cache.keep_fault("a" * 64, CandidateFault(Status.INVALID, "x")),
):
    try:
        keep()
    except EnvironmentFault as fault:
        print(fault)
print(cache.get("a" * 64), list(folder.iterdir()))
"""


def on_a_disk(program: str, folder: Path, *, options: str) -> list[str]:
    """The lines that a program prints for which `folder` is a file system of its own."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare")
    namespace = (unshare, "--map-root-user", "--mount")
    mount = f'mount -t tmpfs -o {options} tmpfs "$1" && shift && exec "$@"'
    inside = (*namespace, "sh", "-c", mount, "sh", str(folder))
    if subprocess.run((*inside, "true"), capture_output=True, check=False).returncode != 0:
        pytest.skip("the system allows no file systems of a test's own")
    head = f"from pathlib import Path\nfolder, include = Path({str(folder)!r}), Path({str(INCLUDE)!r})\n"
    done = subprocess.run(
        (*inside, sys.executable, "-c", head + program), capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_whatever_of_a_build_finds_no_room_none_of_it_is_taken_for_one(tmp_path):
    lines = on_a_disk(ROOM, tmp_path, options="size=64k")
    assert lines == [
        "0 False []",
        "8192",
        "1 False []",
        "8192",
        "2 False ['.cubin']",  # without its record, which counts as absent
        "3 True ['.cubin', '.json']",
        "4 True ['.cubin', '.json']",
        f"the compile cache {tmp_path} cannot be used: [Errno 28] No space left on device; {ADVICE}",
    ]


def test_a_disk_that_is_full_when_nvrtc_has_compiled_is_the_machines_fault_and_leaves_no_file(tmp_path):
    pytest.importorskip("cupy")
    lines = on_a_disk(NVRTC, tmp_path, options="size=64k")
    assert lines == [
        f"the compile cache {tmp_path} cannot be used: [Errno 28] No space left on device; {ADVICE}",
        "['filler']",
        "b'\\x7fELF' ['k']",
    ]


def test_a_file_system_that_takes_no_writes_is_the_machines_fault(tmp_path):
    lines = on_a_disk(KEEP, tmp_path, options="ro")
    assert [line.partition(" cannot be used: ")[2].partition(":")[0] for line in lines[:2]] == [
        "[Errno 30] Read-only file system"
    ] * 2
    assert all(line.endswith(ADVICE) for line in lines[:2])
    assert lines[2:] == ["None []"]


@contextmanager
def _without_roots_rights() -> Iterator[None]:
    """Files are guarded from whoever is not root; so nobody it is, where the tests run as root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_folder_without_the_right_to_write_is_the_machines_fault_and_what_it_holds_is_of_use():
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        folder = Path(parent) / "cache"
        cache = BuildCache(folder)
        cache.keep("a" * 64, b"binary", REPORT)
        for path in folder.iterdir():
            path.chmod(0o644)
        folder.chmod(0o555)
        try:
            with _without_roots_rights():
                with pytest.raises(EnvironmentFault, match=r"cannot be used: \[Errno 13\] Permission denied") as fault:
                    cache.keep("b" * 64, b"binary", REPORT)
                with pytest.raises(EnvironmentFault, match=r"\[Errno 13\]"):
                    cache.keep_fault("b" * 64, CandidateFault(Status.INVALID, "x"))
                kept = cache.get("a" * 64)
        finally:
            folder.chmod(0o755)
        assert "\n" not in str(fault.value)
        assert kept == (folder / f"{'a' * 64}.cubin", REPORT)
        assert len(list(folder.iterdir())) == 2


def test_a_write_that_is_cut_short_leaves_nothing(tmp_path):
    """As on a full disk, without a disk: the system cuts the second half off."""
    program = f"""
import resource
from pathlib import Path
from fitness.build_cache import BuildCache
from fitness.evaluation import BuildReport
from fitness.faults import EnvironmentFault
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    BuildCache(Path({str(tmp_path)!r})).keep("a" * 64, bytes(8192), BuildReport(name="", kernels=(), advisories=()))
except EnvironmentFault as fault:
    print(fault)
"""
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert done.stdout == f"the compile cache {tmp_path} cannot be used: [Errno 27] File too large; {ADVICE}\n"
    assert list(tmp_path.iterdir()) == []
