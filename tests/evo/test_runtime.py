"""From a kernel's file to an operator: what is refused as it is loaded, and what a call says without a GPU."""

import pytest
import torch

from evo.data import seed_folder
from evo.runtime import load_kernel
from fitness.evaluation import Status
from fitness.faults import CandidateFault, EnvironmentFault

MMA = seed_folder() / "mma.cu"


def test_the_same_text_gives_the_same_operator(tmp_path):
    copy = tmp_path / "copy.cu"
    copy.write_text(MMA.read_text())
    first = load_kernel(MMA, cache=tmp_path)
    assert load_kernel(str(copy), cache=tmp_path) is first
    assert load_kernel("mma", cache=tmp_path) is first
    other = load_kernel(MMA, cache=tmp_path / "another")
    assert other is not first
    copy.write_text(MMA.read_text() + "\n")
    assert load_kernel(copy, cache=tmp_path) not in (first, other)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.cu"):
        load_kernel(tmp_path / "missing.cu")
    names = "naive, tiled, hopper_attention"
    with pytest.raises(FileNotFoundError) as caught:
        load_kernel("nosuch")
    assert caught.value.filename == "nosuch"
    assert "No such file or directory; expected a .cu file, or the name of a shipped kernel: " in str(caught.value)
    assert all(name in str(caught.value) for name in names.split(", "))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [(("contract = 1", "contract = 2"), "contract"), (("attention.cuh", "stdio.h"), "a kernel may include")],
)
def test_a_source_that_is_no_candidate_is_refused_as_it_is_loaded(tmp_path, changed, reason):
    path = tmp_path / "kernel.cu"
    path.write_text(MMA.read_text().replace(*changed))
    with pytest.raises(CandidateFault, match=reason) as caught:
        load_kernel(path, cache=tmp_path)
    assert caught.value.status is Status.INVALID


def test_tensors_that_are_on_no_gpu(tmp_path):
    attention = load_kernel(MMA, cache=tmp_path)
    q = torch.zeros(1, 8, 2, 64, dtype=torch.bfloat16)
    with pytest.raises(EnvironmentFault, match="the tensors are on cpu; the kernel needs an NVIDIA GPU"):
        attention(q, q, q, causal=True)
    assert list(tmp_path.iterdir()) == []


def test_a_shape_outside_supports_is_told_before_the_missing_gpu(tmp_path):
    q = torch.zeros(1, 8, 2, 72, dtype=torch.bfloat16)
    with pytest.raises(CandidateFault, match="supports") as caught:
        load_kernel(MMA, cache=tmp_path)(q, q, q)
    assert caught.value.status is Status.UNSUPPORTED


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "kernel.cu"
    path.write_bytes(b"// \xff\n")
    with pytest.raises(CandidateFault) as caught:
        load_kernel(path, cache=tmp_path)
    assert (caught.value.status, caught.value.reason) == (
        Status.INVALID, f"{path} is not UTF-8 text: invalid start byte at byte 3",
    )  # fmt: skip


@pytest.mark.parametrize(("end", "at"), [(b"\n", "/*evo"), (b"// old\n", "// old")])
def test_a_file_with_a_carriage_return_is_refused(tmp_path, end, at):
    path = tmp_path / "kernel.cu"
    path.write_bytes((MMA.read_bytes() + b"// old\n").replace(end, end.replace(b"\n", b"\r\n")))
    with pytest.raises(CandidateFault) as caught:
        load_kernel(path, cache=tmp_path)
    assert caught.value.status is Status.INVALID
    said = "ends in a carriage return; lines end with a line feed alone; that is not allowed"
    assert caught.value.reason == rf"'{at}\r' {said}"


def test_a_cache_that_is_a_file_is_one_line(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(EnvironmentFault) as caught:
        load_kernel(MMA, cache=file)
    assert str(caught.value) == f"cache={file}: this is a file; expected a folder, which need not be there yet"
