"""Builds that come back as they were kept, whatever has happened to the folder meanwhile."""

import json
import os

import pytest

from fitness.build_cache import BuildCache
from fitness.evaluation import BuildReport, KernelResources, Status
from fitness.faults import CandidateFault, EnvironmentFault

REPORT = BuildReport(
    name="CAUSAL=1",
    kernels=(
        KernelResources(
            kernel="k", registers=8, spill_store_bytes=0, spill_load_bytes=4, stack_bytes=16, shared_bytes=1024
        ),
    ),
    advisories=("(C7508) 'setmaxnreg' ignored",),
)
KEY = "0123abcd"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def test_a_build_comes_back_as_it_was_kept(folder):
    path = BuildCache(folder).keep(KEY, b"binary", REPORT)
    assert path.read_bytes() == b"binary"
    assert path.suffix == ".cubin"
    assert BuildCache(folder).get(KEY) == (path, REPORT)


def test_an_unknown_key_has_nothing(folder):
    assert BuildCache(folder).get(KEY) is None


def test_a_fault_is_raised_again(folder):
    BuildCache(folder).keep_fault(KEY, CandidateFault(Status.COMPILE_ERROR, "no such thing"))
    with pytest.raises(CandidateFault) as fault:
        BuildCache(folder).get(KEY)
    assert (fault.value.status, fault.value.reason) == (Status.COMPILE_ERROR, "no such thing")


def test_the_record_is_strict_json(folder):
    BuildCache(folder).keep(KEY, b"binary", REPORT)
    record = json.loads((folder / f"{KEY}.json").read_text(), parse_constant=pytest.fail)
    assert record["report"]["kernels"][0]["registers"] == 8


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".cubin", b"binar"),
        (".cubin", b""),
        (".json", b""),
        (".json", b'{"binary_sha256": "0"'),
        (".json", b"[]"),
        (".json", b"{}"),
        (".json", b'{"fault": {"status": "FINE", "reason": ""}}'),
        (".json", b"\xff\xfe"),
    ],
)
def test_a_damaged_entry_counts_as_absent_and_is_replaced(folder, suffix, content):
    cache = BuildCache(folder)
    cache.keep(KEY, b"binary", REPORT)
    (folder / f"{KEY}{suffix}").write_bytes(content)
    assert cache.get(KEY) is None
    path = cache.keep(KEY, b"binary", REPORT)
    assert cache.get(KEY) == (path, REPORT)


def test_a_record_without_its_binary_counts_as_absent(folder):
    cache = BuildCache(folder)
    cache.keep(KEY, b"binary", REPORT).unlink()
    assert cache.get(KEY) is None


def test_no_unfinished_files_stay_behind(folder):
    BuildCache(folder).keep(KEY, b"binary", REPORT)
    assert sorted(path.name for path in folder.iterdir()) == [f"{KEY}.cubin", f"{KEY}.json"]


def test_a_file_in_place_of_the_folder_is_the_environments_fault(folder):
    folder.write_text("not a folder")
    cache = BuildCache(folder)
    with pytest.raises(EnvironmentFault, match=r"compile cache .* cannot be used"):
        cache.keep(KEY, b"binary", REPORT)
    with pytest.raises(EnvironmentFault, match="name another folder"):
        cache.keep_fault(KEY, CandidateFault(Status.INVALID, "x"))
    with pytest.raises(EnvironmentFault, match="cannot be used"):
        cache.get(KEY)


def test_pruning_removes_the_oldest_until_the_rest_fits(folder):
    cache = BuildCache(folder)
    oldest, middle, newest = (digit * 64 for digit in "abc")
    folder.mkdir(exist_ok=True)
    (folder / "diary.txt").write_text("not ours", encoding="utf-8")
    for age, key in enumerate((oldest, middle, newest)):
        for path in (cache.keep(key, bytes(1000), REPORT), folder / f"{key}.json"):
            os.utime(path, ns=(age, age))
    total = sum(path.stat().st_size for path in folder.iterdir() if path.name != "diary.txt")
    assert cache.prune(total) == 0
    assert cache.prune(total - 1001) >= 1001
    assert cache.get(oldest) is None
    assert cache.get(newest) is not None
    assert cache.get(middle) is not None
    assert cache.prune(0) > 0
    assert [path.name for path in folder.iterdir()] == ["diary.txt"]


def test_another_suffix_for_another_kind_of_binary(folder):
    assert BuildCache(folder, suffix=".so").keep(KEY, b"elf", REPORT).name == f"{KEY}.so"
