"""One build in a Python of its own, so that the process that uses a kernel forks nothing and starts no server.

That process may hold a CUDA context, threads and a main module that does its work as it is imported; none of them goes
well with forking or with multiprocessing. Run as a module this is that other Python: a request comes on stdin and its
answer goes to stdout, both JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fitness.build_cache import BuildCache
from fitness.child_environment import listed_environment
from fitness.compiler import NvrtcCompiler
from fitness.evaluation import Status
from fitness.faults import CandidateFault, EnvironmentFault
from fitness.fork_server import start_fork_server
from fitness.plan import Build
from fitness.scenario import ElementType

_COMPILE_S = 300.0
_WHOLE_S = 600.0  # with the starts of two Pythons, on a busy machine
_COMPILER_MEMORY = 8 << 30
_PACKAGES = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class BuilderApart:
    """Builds one source; what the cache folder holds already is not compiled again."""

    source: str
    include_dir: Path
    cache: Path

    def build(self, build: Build, arch: str) -> Path:
        """The cubin for an architecture ("sm_90a"). Raises CandidateFault or EnvironmentFault."""
        request = {
            "source": self.source,
            "include_dir": str(self.include_dir),
            "cache": str(self.cache),
            "arch": arch,
            "defines": build.defines,
            "element_type": build.element_type,
        }
        environment = listed_environment(os.environ)
        paths = [str(_PACKAGES), *filter(None, [environment.get("PYTHONPATH")])]
        try:
            finished = subprocess.run(
                [sys.executable, "-P", "-m", "fitness.runtime.build_apart"],
                input=json.dumps(request),
                capture_output=True,
                text=True,
                timeout=_WHOLE_S,
                check=False,
                env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvironmentFault(f"the kernel cannot be compiled: {error}") from error
        return _answer(finished)


def _answer(finished: "subprocess.CompletedProcess[str]") -> Path:
    try:
        answer = json.loads(finished.stdout)
    except ValueError as error:
        last = (finished.stderr.strip().splitlines() or ["no word"])[-1]
        raise EnvironmentFault(
            f"the kernel cannot be compiled: the compiling Python ended with exit code {finished.returncode}: {last}"
        ) from error
    if "status" in answer:
        raise CandidateFault(Status(answer["status"]), answer["reason"])
    if "trouble" in answer:
        raise EnvironmentFault(answer["trouble"])
    return Path(answer["binary"])


def answer(request: Mapping[str, object]) -> dict[str, object]:
    """What the compiling Python writes: the binary's path, or whose fault it is that there is none."""
    defines = tuple((str(name), int(value)) for name, value in request["defines"])  # type: ignore[attr-defined]
    build = Build(defines=defines, element_type=ElementType(str(request["element_type"])))
    try:
        compiler = NvrtcCompiler(
            arch=str(request["arch"]),
            include_dir=Path(str(request["include_dir"])),
            cache=BuildCache(Path(str(request["cache"]))),
            processes=1,
            timeout_s=_COMPILE_S,
            memory_bytes=_COMPILER_MEMORY,
        )
        with closing(compiler):
            (compiled,) = compiler.compile(str(request["source"]), [build])
    except CandidateFault as fault:
        return {"status": fault.status, "reason": fault.reason}
    except EnvironmentFault as fault:
        return {"trouble": str(fault)}
    return {"binary": str(compiled.binary.absolute())}


if __name__ == "__main__":
    start_fork_server()
    sys.stdout.write(json.dumps(answer(json.loads(sys.stdin.read()))))
