"""Kernels in use: right on every shape, on any stream, in a compiled function and in a graph."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from evo.runtime import load_kernel
from fitness.faults import CandidateFault
from fitness.gate import Case, judge
from fitness.inputs import Distribution, draw_inputs
from fitness.reference import compute_reference
from fitness.scenario import ElementType
from tests.gpu.sources import ROOT, kernel, shape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),  # what others' packages warn of is not ours to mend
]

MMA = ROOT / "kernels" / "seed" / "mma.cu"
H1 = ROOT / "tests" / "fitness" / "kernels" / "hopper" / "h1.cu"
SHAPES = (
    *(shape(batch=2, heads=4, kv_heads=2, seqlen_q=q, seqlen_k=k, head_dim=head_dim, causal=causal, element_type=e)
      for e, head_dim in ((ElementType.BF16, 64), (ElementType.FP16, 128), (ElementType.BF16, 256))
      for q, k, causal in ((200, 200, True), (33, 131, True), (131, 33, True), (1, 515, False), (300, 77, False))),
)  # fmt: skip
EQUAL_LENGTHS = tuple(
    shape(batch=2, heads=4, kv_heads=4, seqlen_q=length, head_dim=head_dim, causal=causal)
    for head_dim in (64, 128)
    for length, causal in ((512, True), (512, False), (1000, True), (4096, True))
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory, machine):
    return tmp_path_factory.mktemp("runtime_builds")


@pytest.fixture(scope="module")
def mma(cache):
    return load_kernel(MMA, cache=cache)


@pytest.fixture(scope="module")
def h1(cache, hopper):
    return load_kernel(H1, cache=cache)


def inputs(scenario, rng_seed=1):
    dtype = torch.bfloat16 if scenario.element_type is ElementType.BF16 else torch.float16
    q = torch.empty(scenario.batch, scenario.seqlen_q, scenario.heads, scenario.head_dim, dtype=dtype, device="cuda")
    k, v = (q.new_empty(scenario.batch, scenario.seqlen_k, scenario.kv_heads, scenario.head_dim) for _ in range(2))
    draw_inputs(Distribution.NORMAL, rng_seed, q, k, v)
    return q, k, v


def complaint(scenario, tensors, results):
    """What the gate says against o and lse; "" where they are right."""
    case = Case(scenario=scenario.name, distribution="normal", stage="runtime", input_seed=0)
    check = judge(*results, compute_reference(*tensors, scenario), case)
    return "" if check.passed else f"{scenario.name}: {check.reason}"


def same(found, right):
    return all(torch.equal(one, other) for one, other in zip(found, right, strict=True))


@pytest.mark.parametrize("scenario", SHAPES, ids=lambda scenario: scenario.name)
def test_the_seed_is_right(mma, scenario):
    tensors = inputs(scenario)
    assert complaint(scenario, tensors, mma(*tensors, causal=scenario.causal)) == ""


@pytest.mark.parametrize("scenario", EQUAL_LENGTHS, ids=lambda scenario: scenario.name)
def test_a_kernel_with_tensor_maps_is_right_wherever_its_tensors_lie(h1, scenario):
    results = []
    for rng_seed in range(3):  # every round on other memory, with all of the rounds before alive
        tensors = inputs(scenario, rng_seed)
        results.append((tensors, h1(*tensors, causal=scenario.causal)))
    assert [complaint(scenario, *each) for each in results] == ["", "", ""]
    assert len({each[1][0].data_ptr() for each in results}) == 3


def test_shapes_may_alternate(mma, h1):
    one, other = EQUAL_LENGTHS[0], EQUAL_LENGTHS[5]
    tensors = {scenario: inputs(scenario) for scenario in (one, other)}
    right = {each: mma(*tensors[each], causal=each.causal) for each in (one, other)}
    for scenario in (one, other) * 4:
        assert same(mma(*tensors[scenario], causal=scenario.causal), right[scenario])
        assert complaint(scenario, tensors[scenario], h1(*tensors[scenario], causal=scenario.causal)) == ""


@pytest.mark.parametrize("name", ["mma", "h1"])
def test_torch_compile_takes_it_whole(request, name):
    torch.compiler.reset()
    attention, scenario = request.getfixturevalue(name), EQUAL_LENGTHS[0]
    q, k, v = inputs(scenario)

    def block(q, k, v):
        o, lse = attention(q * 2, k, v, causal=True)
        return o.flatten(2) + 1, lse

    compiled = torch.compile(block, fullgraph=True)
    for _ in range(2):
        assert same(compiled(q, k, v), block(q, k, v))


@pytest.mark.parametrize("name", ["mma", "h1"])
@pytest.mark.parametrize("scenario", [EQUAL_LENGTHS[0], EQUAL_LENGTHS[4]], ids=lambda scenario: scenario.name)
def test_a_graph_replays_it_on_new_values(request, name, scenario):
    attention = request.getfixturevalue(name)
    static = inputs(scenario, 1)
    attention(*static, causal=scenario.causal)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = attention(*static, causal=scenario.causal)
    for rng_seed in (2, 3):
        attention(*inputs(scenario, 9), causal=scenario.causal)  # a call between does not disturb the graph's own
        draw_inputs(Distribution.NORMAL, rng_seed, *static)
        graph.replay()
        assert complaint(scenario, static, results) == ""


def test_workspaces_are_part_of_a_graph(mma):
    scenario = SHAPES[3]  # one query: the keys are split, and a second kernel joins the parts
    static = inputs(scenario, 1)
    mma(*static)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = mma(*static)
    torch.empty(1 << 28, dtype=torch.uint8, device="cuda").fill_(255)
    for rng_seed in (2, 3):
        draw_inputs(Distribution.NORMAL, rng_seed, *static)
        graph.replay()
        assert complaint(scenario, static, results) == ""


def test_zeroed_workspaces_are_zero_at_every_call(cache, tmp_path):
    path = tmp_path / "workspaces.cu"
    path.write_text(kernel("workspaces"))
    attention = load_kernel(path, cache=cache)
    for _ in range(3):
        used = [torch.full((4000,), 255, dtype=torch.uint8, device="cuda") for _ in range(64)]
        del used  # the next workspace lies where one of them lay
        _, lse = attention(*inputs(shape()), causal=True)
        assert lse.flatten()[1].item() == 1.0


def test_a_graph_cannot_capture_the_first_call_of_a_shape(mma):
    tensors = inputs(shape(seqlen_q=777))
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(ValueError, match="was not called before this capture"), torch.cuda.graph(graph):
        mma(*tensors, causal=True)
    torch.cuda.synchronize()
    assert complaint(shape(seqlen_q=777), tensors, mma(*tensors, causal=True)) == ""


@pytest.mark.parametrize("name", ["mma", "h1"])
def test_it_runs_on_the_current_stream(request, name):
    attention, scenario = request.getfixturevalue(name), EQUAL_LENGTHS[3]
    tensors = inputs(scenario)
    right = attention(*tensors, causal=True)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = [torch.zeros_like(each) for each in tensors]
        torch.cuda._sleep(100_000_000)  # on any other stream the kernel would read the zeros
        for empty, full in zip(late, tensors, strict=True):
            empty.copy_(full)
        results = attention(*late, causal=True)
        done = torch.cuda.Event()
        done.record()
    assert not done.query()
    stream.synchronize()
    assert same(results, right)


def test_a_fresh_thread_may_call(mma):
    tensors, found = inputs(SHAPES[0]), []
    right = mma(*tensors, causal=True)
    thread = threading.Thread(target=lambda: found.append(mma(*tensors, causal=True)))
    thread.start()
    thread.join()
    assert same(found[0], right)


def test_threads_do_not_mix_their_arguments(h1):
    scenario = EQUAL_LENGTHS[0]
    tensors = [inputs(scenario, rng_seed) for rng_seed in range(4)]
    right = [h1(*each, causal=True) for each in tensors]

    def all_right(number):
        return all(same(h1(*tensors[number], causal=True), right[number]) for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(all_right, range(4))) == [True] * 4


def test_strided_tensors_are_copied(mma, h1):
    scenario = EQUAL_LENGTHS[0]
    packed = torch.stack(inputs(scenario), dim=2)
    strided, plain = packed.unbind(2), [each.contiguous() for each in packed.unbind(2)]
    assert not strided[0].is_contiguous()
    for attention in (mma, h1):
        assert same(attention(*strided, causal=True), attention(*plain, causal=True))


def test_the_scale_can_be_set(mma):
    scenario = SHAPES[0]
    q, k, v = inputs(scenario)
    found = mma(q, k, v, causal=True, softmax_scale=2 * scenario.head_dim**-0.5)
    assert complaint(scenario, (q * 2, k, v), found) == ""  # a power of two: no rounding tells them apart


def test_a_shape_outside_supports_is_refused_with_its_reason(h1):
    q, k, v = inputs(shape(seqlen_q=33, seqlen_k=131))
    with pytest.raises(CandidateFault, match=r"UNSUPPORTED|unsupported"):
        h1(q, k, v, causal=True)


def test_torch_finds_the_operator_sound(mma):
    found = torch.library.opcheck(mma.torch_operator, (*inputs(SHAPES[0]), True, None))
    assert set(found.values()) == {"SUCCESS"}


def test_another_gpu_of_the_machine(mma, h1):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    scenario = EQUAL_LENGTHS[0]
    tensors = inputs(scenario)
    there = [each.to("cuda:1") for each in tensors]
    for attention in (mma, h1):
        right, found = attention(*tensors, causal=True), attention(*there, causal=True)
        assert found[0].device == torch.device("cuda", 1)
        assert same([each.to("cuda:0") for each in found], right)
        assert torch.cuda.current_device() == 0


def test_a_second_process_uses_the_builds_of_the_first(mma, cache):
    tensors = inputs(SHAPES[0])
    mma(*tensors, causal=True)
    before = {path.name: path.stat().st_mtime_ns for path in Path(cache).iterdir()}
    script = (
        "import sys, torch\nfrom evo.runtime import load_kernel\n"
        "q = torch.randn(2, 200, 4, 64, dtype=torch.bfloat16, device='cuda')\n"
        "k = q[:, :, :2].contiguous()\n"
        "o, lse = load_kernel(sys.argv[1], cache=sys.argv[2])(q, k, k, causal=True)\n"
        "print(bool(o.isfinite().all() and lse.isfinite().all()))\n"
    )
    command = [sys.executable, "-c", script, str(MMA), str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "True\n", done.stderr
    assert {path.name: path.stat().st_mtime_ns for path in Path(cache).iterdir()} == before
