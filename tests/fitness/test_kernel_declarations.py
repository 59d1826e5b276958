"""The kernels that a text declares, held against those that its manifest launches."""

from dataclasses import replace

import pytest

from fitness.evaluation import Status
from fitness.faults import CandidateFault
from fitness.manifest import LaunchSpec, Manifest, TensorMapSpec
from fitness.rules import check_rules

LAUNCH = LaunchSpec(kernel="f", grid=("1", "1", "1"), block=("32", "1", "1"))
PORTABLE = Manifest(
    contract=1, name="n", targets=("portable",), supports="1", knobs=(), defines=(),
    tensor_maps=(), workspaces=(), launches=(LAUNCH,),
)  # fmt: skip
HOPPER = replace(PORTABLE, targets=("sm_90a",))
MAP = TensorMapSpec(tensor="q", box=("64", "1", "64", "1"), swizzle="128")
KERNEL = '\nextern "C" __global__ void f(const __grid_constant__ AttentionParams params) {}\n'


def reason_of(source: str, manifest: Manifest = HOPPER) -> str:
    with pytest.raises(CandidateFault) as caught:
        check_rules(source, manifest)
    assert caught.value.status is Status.INVALID
    assert len(caught.value.reason) < 1000
    return caught.value.reason


PARAMS = "(const __grid_constant__ AttentionParams params)"


@pytest.mark.parametrize(
    "text",
    [
        f'extern "C" __global__ void f{PARAMS} {{}}',
        f'extern "C" __global__ void __launch_bounds__(128 * (2 + 1), 1) f{PARAMS} {{}}',
        f'extern "C" __global__ __launch_bounds__(128) __cluster_dims__(2, 1, 1) void f{PARAMS} {{}}',
        f'extern "C" __launch_bounds__((128)) __global__ void f{PARAMS} {{}}',
        f'extern"C"/* x */__global__\nvoid\nf\n{PARAMS}\n{{}}',
        f'extern "C" {{ __device__ int g() {{ return 1; }} __global__ void f{PARAMS} {{}} }}',
        f'namespace n {{ int x; extern "C" __global__ void f{PARAMS} {{}} }}',
        f'extern "C" __global__ void f{PARAMS};\n__device__ int x;',
        f'struct S {{ int x; }};\nstatic void __launch_bounds__(32) g();\nextern "C" __global__ void f{PARAMS} {{}}',
        f'#if A\nvoid g() {{\n#else\nvoid h() {{\n#endif\n}}\nextern "C" __global__ void f{PARAMS} {{}}',
        'extern "C" __global__ void f(AttentionParams) {}',
        'extern "C" __global__ void f(__grid_constant__ const AttentionParams p) {}',
        f'template <int N> __global__ void g(int x) {{}}\nextern "C" __global__ void f{PARAMS} {{}}',
    ],
)
def test_a_kernels_declaration_is_found(text):
    check_rules(text, PORTABLE)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no kernel f is declared as extern \"C\" __global__; declared: 'none'"),
        (f'extern "C" __global__ void g{PARAMS} {{}}', "no kernel f is declared as extern \"C\" __global__"),
        (f'// extern "C" __global__ void f{PARAMS} {{}}', "no kernel f is declared"),
        (f'const char* s = "extern C __global__ void f{PARAMS}";', "no kernel f is declared"),
        (f'#define K extern "C" __global__\nK void f{PARAMS} {{}}', "no kernel f is declared"),
        (f'extern "C" __device__ void f{PARAMS} {{}}', "no kernel f is declared"),
        (f"__global__ void f{PARAMS} {{}}", 'the kernel f must be declared extern "C"'),
        (f'extern "C++" __global__ void f{PARAMS} {{}}', 'the kernel f must be declared extern "C"'),
        (f'extern "C" {{ }}\n__global__ void f{PARAMS} {{}}', 'the kernel f must be declared extern "C"'),
        (f'extern "C" {{ template <int N> __global__ void f{PARAMS} {{}} }}', "be no template"),
        ('extern "C" __global__ void f() {}', "takes ''; expected (const __grid_constant__ AttentionParams)"),
        ('extern "C" __global__ void f(const AttentionParams& p) {}', "takes 'AttentionParams &'"),
        ('extern "C" __global__ void f(AttentionParams* p) {}', "takes 'AttentionParams *'"),
        ('extern "C" __global__ void f(AttentionParams p, int n) {}', "takes 'AttentionParams, int'"),
        ('extern "C" __global__ void f(AttentionParams p, TensorMap m) {}', "takes 'AttentionParams, TensorMap'"),
        ('extern "C" __global__ void f(const Element* q, float scale) {}', "takes 'Element *, float'"),
    ],
)
def test_a_kernel_that_is_not_declared_rightly(text, part):
    assert part in reason_of(text, PORTABLE)


def test_every_launched_kernel_is_looked_for():
    manifest = replace(HOPPER, launches=(LAUNCH, replace(LAUNCH, kernel="merge")))
    assert "no kernel merge is declared" in reason_of(KERNEL, manifest)
    check_rules(KERNEL + KERNEL.replace(" f(", " merge("), manifest)


@pytest.mark.parametrize("tensor_maps", [1, 3])
def test_a_kernel_takes_every_map(tensor_maps):
    manifest = replace(HOPPER, tensor_maps=(MAP,) * tensor_maps)
    maps = "".join(f", const __grid_constant__ TensorMap map{i}" for i in range(tensor_maps))
    check_rules(KERNEL.replace("params)", f"params{maps})"), manifest)
    assert "a map for each [[tensor_map]]" in reason_of(KERNEL, manifest)
