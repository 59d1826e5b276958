"""The logic of the seed for Blackwell, run on a processor over a software model of tcgen05, TMA and mbarriers.

No test here knows the hardware: the model says what the PTX ISA says, and the text of the kernel runs on it unchanged
but for the wrappers of single instructions. See tests/fitness/models/tcgen05.h.
"""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]
MODELS = Path(__file__).parent / "models"
SOURCE = (ROOT / "kernels" / "seed" / "blackwell.cu").read_text()
DEFAULTS = {name: int(value) for name, value in re.findall(r"^(\w+) = \{ value = (\d+)", SOURCE, re.MULTILINE)}
KINDS = {"EVO_BF16": torch.bfloat16, "EVO_FP16": torch.float16}
WRONG = "the numbers are wrong"
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


class BrokenError(Exception):
    """What the model said of a program that broke a rule of the hardware."""


def on_the_model(source):
    """The source as C++ for a processor: the sections of single instructions give way to the model."""
    titles = ("instructions: barriers and copies", "exponentials")
    start, end = (source.rindex("\n// -", 0, source.index(f"- {title}\n")) + 1 for title in titles)
    pack = re.search(r"#if defined\(EVO_BF16\)\n#define TO_PAIR.*?\n}\n", source[start:end], re.DOTALL)
    text = source[:start] + pack[0] + source[end:]
    for old, new in (
        ("__shared__ Shared shared;", "static Shared shared;"),
        ("extern __shared__ __align__(1024) unsigned char dynamic[];", ""),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    return f'#include "tcgen05.h"\n{text}\n#include "tcgen05_main.h"\n'


def compiled(folder, defines):
    """Makes folder/model of folder/model.cpp."""
    flags = [f"-D{name}={value}" for name, value in (DEFAULTS | defines).items()]
    places = [f"-I{path}" for path in (MODELS, ROOT / "fitness/backends/host", ROOT / "kernels/include")]
    command = ["g++", "-std=c++17", "-O1", "-w", "-Wno-psabi", *flags, *places, "model.cpp", "-o", "model"]
    subprocess.run(command, cwd=folder, check=True)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A function from defines to a compiled program; each is compiled once."""
    built = {}

    def build(**defines):
        key = tuple(sorted(defines.items()))
        if key not in built:
            folder = tmp_path_factory.mktemp("model")
            (folder / "model.cpp").write_text(on_the_model(SOURCE))
            compiled(folder, defines)
            built[key] = folder
        return built[key]

    return build


def attention(q, k, v, causal):
    """The output and the sums' logarithms in float64; q, k, v: [batch, seqlen, heads, head_dim]."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.double().transpose(1, 2) for x in (q, k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)))
    scores = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
    if causal:
        rows, keys = scores.shape[2:]
        scores.masked_fill_(~torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows), -torch.inf)
    output = torch.softmax(scores, 3).nan_to_num(0.0) @ v
    return output.transpose(1, 2), torch.logsumexp(scores, 3)


def run(folder, shape, *, kind, laziness, seed, spread=1.0, head_dim=128, fault=-1):
    """The greatest errors of the output and of lse on one shape: batch, heads, kv_heads, seqlen_q, seqlen_k, causal."""
    batch, heads, kv_heads, seqlen_q, seqlen_k, causal = shape
    draw = torch.Generator().manual_seed(seed)
    sizes = ((seqlen_q, heads), (seqlen_k, kv_heads), (seqlen_k, kv_heads))
    q, k, v = (torch.randn(batch, length, n, head_dim, generator=draw).to(KINDS[kind]) for length, n in sizes)
    q *= spread
    header = np.array([*shape, laziness, seed, fault], dtype=np.int32)
    tensors = (x.view(torch.int16).numpy().tobytes() for x in (q, k, v))
    (folder / "input").write_bytes(header.tobytes() + b"".join(tensors))
    done = subprocess.run(["./model", "input", "output"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BrokenError(done.stderr)
    raw = (folder / "output").read_bytes()
    o = torch.frombuffer(bytearray(raw[: q.numel() * 2]), dtype=KINDS[kind]).view(q.shape).double()
    lse = torch.frombuffer(bytearray(raw[q.numel() * 2 :]), dtype=torch.float32).view(batch, heads, seqlen_q).double()
    expected_o, expected_lse = attention(q, k, v, causal)
    unseen = expected_lse == -torch.inf
    assert torch.equal(lse == -torch.inf, unseen)
    assert not o.transpose(1, 2)[unseen].any()
    seen = ~unseen
    return (o - expected_o).abs().max().item(), (lse - expected_lse)[seen].abs().amax().item() if seen.any() else 0.0


SHAPES = [
    (1, 1, 1, 1, 1, True),
    (1, 2, 1, 300, 300, True),
    (2, 2, 2, 67, 67, True),
    (1, 2, 1, 33, 131, True),
    (1, 2, 2, 300, 33, True),  # the first tile of queries sees no key at all
    (1, 2, 2, 200, 150, True),  # rows without a key in the first tile, and all of its rows' keys beside them
    (1, 4, 2, 5, 700, False),
    (1, 1, 1, 520, 520, False),
]


@pytest.mark.parametrize("laziness", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_right_however_asynchronous_work_is_ordered(program, shape, laziness):
    folder = program(EVO_BF16=1, HEAD_DIM=128)
    o_error, lse_error = run(folder, shape, kind="EVO_BF16", laziness=laziness, seed=laziness)
    assert o_error < 0.02
    assert lse_error < 2e-6


@pytest.mark.parametrize(
    ("head_dim", "kind", "knobs"),
    [
        (64, "EVO_BF16", {}),
        (64, "EVO_FP16", {"BLOCK_N": 64, "STAGES": 2, "RESCALE_SLACK": 0, "CAUSAL_LONGEST_FIRST": 0}),
        (128, "EVO_FP16", {"STAGES": 2, "RESCALE_SLACK": 0}),
        (128, "EVO_BF16", {"BLOCK_N": 64, "STAGES": 3, "EXP_ON_FMA": 16}),
    ],
)
@pytest.mark.parametrize("spread", [1.0, 8.0])  # with the second, references move in almost every row
def test_both_head_dims_both_types_and_the_knobs_are_right(program, head_dim, kind, knobs, spread):
    folder = program(HEAD_DIM=head_dim, **{kind: 1}, **knobs)
    for number, causal in enumerate((False, True)):
        shape = (1, 2, 1, 300, 520, causal)
        errors = run(folder, shape, kind=kind, laziness=1, seed=number, spread=spread, head_dim=head_dim)
        assert errors[0] < (0.04 if kind == "EVO_BF16" else 0.006)
        assert errors[1] < (1e-4 if knobs.get("EXP_ON_FMA") else 2e-5)


# What stands in the source, what takes its place, and what the model must say of it.
FAULTS = {
    "scores written over probabilities that are being read": ("await(shared.output_full[tile], j);", "", WRONG),
    "products before the probabilities": ("await(shared.probabilities_full[tile], j);", "", WRONG),
    "products before the correction": ("await(shared.output_corrected[tile], j - 1);", "", WRONG + "|phase|arrivals"),
    "loads over what is being read": ("await(shared.ring_empty[stage], round - 1);", "", WRONG + "|phase|arrivals"),
    "an arrival that nobody awaits": ("if (load + STAGES < 2 * most)", "if (true)", "under way|waits for ever"),
    "another half of the columns of V": ("describe(ALONG_N, ", "describe(ALONG_K, ", WRONG),
    "columns beyond a slab": ("step / 4 * rows * 128 + step % 4 * 32", "step * 32", WRONG),
    "a factor that is not there yet": ("await(shared.decay_full[tile], j - 1);", "", WRONG + "|phase"),
    "a sum that is not there yet": ("await(shared.sum_full[tile], 0);", "", WRONG),
    "probabilities under way": ("await_stores();\n        fence_before();\n", "", WRONG + "|work under way"),
    "the lanes of another warp": ("threadIdx.x / 32 % 4 * 32", "threadIdx.x / 32 * 32", "lanes of another warp"),
    "an arrival that never comes": ("arrive(shared.output_corrected[tile]);", "", "waits for ever"),
    "copies that outlive the block": ("    await_closed_stores();\n", "", "work under way"),
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """One program with all the faults, of which EVO_FAULT chooses one."""
    source = SOURCE
    for number, (right, wrong, _) in enumerate(FAULTS.values()):
        assert source.count(right) == 1
        if right.endswith((";", "\n")):
            changed = f"if (fault != {number}) {{ {right} }}"
        elif right.startswith("if"):
            changed = f"if (fault == {number} || {right[4:-1]})"
        elif right.startswith("describe"):
            changed = f"describe(fault == {number} ? ALONG_K : ALONG_N, "
        else:
            changed = f"(fault == {number} ? {wrong} : {right})"
        source = source.replace(right, changed)
    folder = tmp_path_factory.mktemp("faulty")
    (folder / "model.cpp").write_text(on_the_model(source))
    compiled(folder, {"EVO_BF16": 1, "HEAD_DIM": 128, "STAGES": 2})
    return folder


@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_finds_what_is_wrong(faulty, fault):
    found = []
    for seed in range(3):
        try:
            errors = run(
                faulty, (1, 1, 1, 256, 700, False), kind="EVO_BF16", laziness=1 + seed % 2, seed=seed, spread=8.0,
                fault=list(FAULTS).index(fault),
            )  # fmt: skip
        except BrokenError as broken:
            found.append(str(broken))
        else:
            found.append("" if errors[0] < 0.04 and errors[1] < 2e-5 else WRONG)
    assert any(re.search(FAULTS[fault][2], each) for each in found), found
