"""`evo kernels`: a person's kernel to a run, and two of its kernels joined."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from by_files import Said, by_files, evo, names
from small_search import SOURCE, assemble, run_part, small_config
from small_shots import SHOTS
from small_steady import steady

from evo.added_kernels import AddedKernel, add_kernel, kernel_files, read_kernel
from evo.kernel_checks import MOST_BYTES
from evo.merging import merge_texts, with_joined_knobs
from evo.settings import ConfigError
from fitness.manifest import read_manifest, with_knobs
from population.archive import create_archive, open_archive
from population.archive_reader import read_archive
from population.individual import individual_id
from population.run_folder import RunFolder, create_run_folder

ROOT = individual_id(SOURCE)
BODY = "    params.o[threadIdx.x] = to_element(0.0f);\n"
ONE = with_knobs(SOURCE.replace("#include", "// one\n#include"), {"BLOCK_M": 64})
OTHER = with_knobs(SOURCE.replace(BODY, f"{BODY}    // other\n"), {"WIDTH": 2})
BOTH = with_knobs(SOURCE.replace("#include", "// one\n#include").replace(BODY, f"{BODY}    // other\n"), {"BLOCK_M": 64, "WIDTH": 2})
THIRD = SOURCE.replace(BODY, f"{BODY}    // third\n")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run of one generation, with two kernels by hand in it."""
    folder = create_run_folder(tmp_path, "run")
    for source in (ONE, OTHER, THIRD):
        add_kernel(folder, AddedKernel(source=source, parent_ids=(ROOT,)))
    run_part(small_config(generations=1), folder)
    return folder


def kernel(folder: Path, text: str | bytes) -> str:
    path = folder / "mine.cu"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return str(path)


def waiting(run: RunFolder) -> list[AddedKernel]:
    return [read_kernel(path) for path in kernel_files(run.added)][3:]
