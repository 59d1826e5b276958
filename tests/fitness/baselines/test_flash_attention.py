"""FlashAttention, by stubs in a folder that is looked in first: which package is taken, on which GPU, at which setting.

The stubs hide whatever is installed here under their names, so that every machine finds the same.
"""

import sys
from contextlib import contextmanager

import pytest
import torch

from fitness.baselines.fa3 import Fa3Baseline
from fitness.baselines.fa4 import Fa4Baseline
from fitness.faults import BaselineUnavailableError
from fitness.scenario import ElementType
from tests.fitness.fake_device import empty_tensors, scenario

HOPPER, AMPERE, BLACKWELL = (9, 0), (8, 0), (10, 0)
SHAPE = scenario()
# What a call was given comes back as its output: the tensors, the mask, and the setting.
RECORDS = """
def flash_attn_func(q, k, v, causal, num_splits="none"):
    return [q, k, v, causal, num_splits], "lse"
"""
BROKEN = "raise OSError('libcudart.so.13: cannot open shared object file')"
ABSENT = "raise ImportError('not here')"


@contextmanager
def installed(folder, modules, package):
    """The modules by name, each with its text, and the metadata of the package that they belong to."""
    for name, text in modules.items():
        path = folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    metadata = folder / f"{package.replace('-', '_')}-1.2.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    roots = {name.partition(".")[0] for name in modules}
    ours = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in roots}
    for name in ours:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] in roots]:
            del sys.modules[name]
        sys.modules.update(ours)


def fa3(folder, *, capability=HOPPER, flash_attn_interface=ABSENT, fa3_fwd_interface=ABSENT, package="fa3-fwd"):
    modules = {"flash_attn_interface": flash_attn_interface, "fa3_fwd_interface": fa3_fwd_interface}
    with installed(folder, modules, package):
        return Fa3Baseline(lambda: capability)


def fa4(folder, *, capability=HOPPER, cute=RECORDS):
    with installed(folder, {"flash_attn.__init__": "", "flash_attn.cute": cute}, "flash-attn-4"):
        return Fa4Baseline(lambda: capability)


@pytest.mark.parametrize(
    ("package", "module"), [("tokenspeed-fa3", "flash_attn_interface"), ("fa3-fwd", "fa3_fwd_interface")]
)
def test_fa3_is_found_under_each_of_its_import_names_and_named_with_its_version(tmp_path, package, module):
    found = fa3(tmp_path, **{module: RECORDS}, package=package)
    assert (found.name, found.version) == ("fa3", f"{package} 1.2")


def test_where_the_first_does_not_load_the_second_is_taken(tmp_path):
    found = fa3(tmp_path, flash_attn_interface=BROKEN, fa3_fwd_interface=RECORDS)
    assert found.version == "fa3-fwd 1.2"


def test_without_fa3_each_names_trouble_is_told_and_what_to_install(tmp_path):
    with pytest.raises(BaselineUnavailableError) as told:
        fa3(tmp_path, flash_attn_interface=BROKEN)
    assert str(told.value) == (
        "baseline fa3: flash_attn_interface: libcudart.so.13: cannot open shared object file; "
        "fa3_fwd_interface: not here; install it with: pip install tokenspeed-fa3"
    )


@pytest.mark.parametrize(
    ("capability", "told"),
    [
        (None, "torch finds no GPU"),
        (AMPERE, "FlashAttention-3 is made for sm_90, and this GPU is sm_80"),
        (BLACKWELL, "FlashAttention-3 is made for sm_90, and this GPU is sm_100"),
    ],
)
def test_on_a_gpu_that_fa3_is_not_made_for_one_line_says_so(tmp_path, capability, told):
    with pytest.raises(BaselineUnavailableError) as unavailable:
        fa3(tmp_path, capability=capability, fa3_fwd_interface=RECORDS)
    assert str(unavailable.value) == f"baseline fa3: {told}; choose baseline=sdpa"


@pytest.mark.parametrize("causal", [True, False])
def test_fa3_is_offered_in_one_pass_over_the_keys_and_split_as_it_likes(tmp_path, causal):
    tensors, shape = empty_tensors(SHAPE), scenario(causal=causal)
    calls = fa3(tmp_path, fa3_fwd_interface=RECORDS).calls(tensors, shape)
    given = {setting: call() for setting, call in calls.items()}
    assert {setting: arguments[3:] for setting, arguments in given.items()} == {
        "num_splits=1": [causal, 1],
        "num_splits=0": [causal, 0],
    }
    for q, k, v, *_ in given.values():
        assert q is tensors.q
        assert k is tensors.k
        assert v is tensors.v


def test_the_package_with_bf16_alone_says_so_and_the_other_takes_both(tmp_path):
    fp16 = scenario(element_type=ElementType.FP16)
    narrow = fa3(tmp_path, fa3_fwd_interface=RECORDS)
    assert (narrow.cannot(SHAPE), narrow.cannot(fp16)) == ("", "fa3-fwd has bf16 only")
    (tmp_path / "other").mkdir()
    wide = fa3(tmp_path / "other", flash_attn_interface=RECORDS, package="tokenspeed-fa3")
    assert (wide.cannot(SHAPE), wide.cannot(fp16)) == ("", "")


@pytest.mark.parametrize("capability", [HOPPER, BLACKWELL])
def test_fa4_is_offered_at_its_one_setting_where_it_is_installed(tmp_path, capability):
    tensors = empty_tensors(SHAPE)
    found = fa4(tmp_path, capability=capability)
    assert (found.name, found.version) == ("fa4", "flash-attn-4 1.2")
    [(setting, call)] = found.calls(tensors, SHAPE).items()
    assert setting == "default"
    assert call()[3:] == [True, "none"]


def test_without_fa4_one_line_says_what_to_install(tmp_path):
    with pytest.raises(BaselineUnavailableError) as told:
        fa4(tmp_path, cute=ABSENT)
    assert str(told.value) == (
        "baseline fa4: not here; install it with: pip install --pre flash-attn-4 'nvidia-cutlass-dsl[cu13]'"
    )


@pytest.mark.parametrize("capability", [None, AMPERE])
def test_on_a_gpu_that_is_too_old_for_fa4_one_line_says_so(tmp_path, capability):
    with pytest.raises(BaselineUnavailableError) as told:
        fa4(tmp_path, capability=capability)
    assert str(told.value) == "baseline fa4: it needs a GPU of sm_90 or newer; choose baseline=sdpa"


def test_this_process_is_asked_for_its_gpu_where_nothing_else_is_said(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("for a machine without a GPU")
    stubs = installed(tmp_path, {"fa3_fwd_interface": RECORDS, "flash_attn_interface": ABSENT}, "fa3-fwd")
    with stubs, pytest.raises(BaselineUnavailableError, match="torch finds no GPU"):
        Fa3Baseline()
