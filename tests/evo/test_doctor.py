"""What `evo doctor` finds, and what it says to do about it."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from small_search import MACHINE

from evo.commands.doctor import Finding, doctor, findings
from fitness.faults import EnvironmentFault
from fitness.probe import Gpu, Machine

H200 = Gpu(index=0, name="NVIDIA H200", capability=(9, 0), sm_count=132, memory_gib=139.8)
FULL = Machine(
    processor="test device",
    gpus=(H200,),
    driver="580.95",
    gxx="g++ 12.2.0",
    nvrtc="13.0",
    packages={
        "torch": "2.11.0",
        "cupy-cuda13x": "14.2.0",
        "nvidia-ml-py": "13.580",
        "tokenspeed-fa3": "3.0.1",
        "flash-attn-4": "4.0.0b1",
    },
)


def by_subject(machine: Machine, environment: dict[str, str] | None = None) -> dict[str, Finding]:
    found = findings(machine, environment or {}, "MODEL_KEY")
    assert len({finding.subject for finding in found}) == len(found)
    return {finding.subject: finding for finding in found}


def test_a_machine_that_has_everything_needs_nothing() -> None:
    found = by_subject(FULL, {"MODEL_KEY": "secret"})
    assert {subject: finding.remedy for subject, finding in found.items() if finding.remedy} == {}
    assert found["GPU 0"].found == "NVIDIA H200, sm_90a, 132 multiprocessors, 140 GiB"
    assert found["CuPy"].found == "cupy-cuda13x 14.2.0"
    assert found["baseline fa3"].found == "tokenspeed-fa3 3.0.1"


def test_a_bare_machine_is_told_what_to_install() -> None:
    found = by_subject(MACHINE)
    assert found["g++"].found == found["torch"].found == found["NVRTC"].found == found["CuPy"].found == "missing"
    assert found["g++"].remedy == "the host backend needs it; Debian: apt install g++"
    assert found["torch"].remedy == "pip install torch"
    assert (found["GPU"].found, found["GPU"].remedy) == ("none", "none is needed for backend=host")
    assert found["baseline fa3"].remedy == "none: it needs a Hopper GPU (sm_90)"  # nothing could run it here
    assert found["baseline fa4"].remedy == "none: it needs a GPU of sm_90 or newer"


def test_trouble_with_a_gpu_is_the_remedys_place() -> None:
    found = by_subject(replace(MACHINE, gpu_trouble="there is a GPU, but torch cannot use it"))
    assert found["GPU"].remedy == "there is a GPU, but torch cannot use it"


def test_flash_attention_is_worth_installing_only_where_it_runs() -> None:
    bare = replace(FULL, packages={"torch": "2.11.0"})
    assert by_subject(bare)["baseline fa3"].remedy == "pip install tokenspeed-fa3"
    assert by_subject(bare)["baseline fa4"].remedy == "if wanted beside fa3: pip install --pre flash-attn-4"
    blackwell = replace(bare, gpus=(replace(H200, capability=(10, 0)),))
    assert by_subject(blackwell)["baseline fa4"].remedy == "pip install --pre flash-attn-4"
    assert by_subject(blackwell)["baseline fa3"].remedy == "none: it needs a Hopper GPU (sm_90)"


def test_two_cupys_disturb_each_other() -> None:
    both = replace(FULL, packages={**FULL.packages, "cupy-cuda12x": "14.2.0"})
    assert by_subject(both)["CuPy"].remedy == "two of them disturb each other: remove one"


def test_an_old_gpu_is_named() -> None:
    old = replace(FULL, gpus=(replace(H200, name="V100", capability=(7, 0)),))
    assert by_subject(old)["GPU 0"].remedy == "sm_80 or newer is needed for bf16 kernels"


def test_the_key_is_looked_for_and_never_shown() -> None:
    with_key = by_subject(FULL, {"MODEL_KEY": "secret", "OPENAI_BASE_URL": "http://localhost:8000"})
    assert with_key["answerer openai"].found == "MODEL_KEY is set; server: http://localhost:8000"
    assert "secret" not in str(with_key)
    assert by_subject(FULL)["answerer openai"].found == "MODEL_KEY is not set"


def test_on_this_machine_it_says_what_a_run_would_use() -> None:
    said = io.StringIO()
    assert doctor(["backend=recorded", "backend.table=t.jsonl"], Console(file=said, width=200)) == 0
    assert "what is here" in said.getvalue()
    assert said.getvalue().splitlines()[-1].startswith("a run would use: recorded (t.jsonl), sdpa, smoke")


def test_what_is_configured_and_not_here_is_the_environments_fault() -> None:
    with pytest.raises(EnvironmentFault, match="nothing can be judged here as configured: backend"):
        doctor(["backend=cuda", "backend.device=99"], Console(file=io.StringIO()))
