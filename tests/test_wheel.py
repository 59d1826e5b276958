"""A wheel that is built from here and unpacked elsewhere: configuration, kernels, bank and headers travel inside."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what an installation would, and nothing of the checkout."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = wheels.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    return site


def evo(site: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "evo", *words]
    environment = {"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_search_runs_from_it(elsewhere: Path, tmp_path: Path) -> None:
    found = evo(elsewhere, tmp_path, "evolve", "name=first", "stop.evaluations=2", "judge.repeats=1", "judge.warmups=0")
    assert (found.returncode, found.stderr) == (0, "")
    assert "suite     smoke (6 scenarios)" in found.stdout
    assert (tmp_path / "runs" / "first" / "result.json").is_file()


def test_it_holds_every_kernel_header_suite_and_question(elsewhere: Path) -> None:
    data = elsewhere / "evo" / "_data"
    for folder in ("conf", "kernels"):
        shipped = {path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert shipped == {path.relative_to(data) for path in (data / folder).rglob("*") if path.is_file()}
    templates = ("evo/templates/prompt.md", "evo/report/templates/page.js")
    for path in ("questions/bank.yaml", *templates, "fitness/backends/host/cuda_on_cpu.h"):
        assert (elsewhere / path).read_bytes() == (ROOT / path).read_bytes()
