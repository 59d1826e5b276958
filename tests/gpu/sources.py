"""The kernels of the tests on a GPU, and shapes for them."""

from pathlib import Path

from fitness.scenario import ElementType, Scenario

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHEATS = sorted((HERE / "kernels" / "cheats").glob("*.cu"))
HOST_KERNELS = ROOT / "tests" / "fitness" / "kernels"
PORTABLE = [path for kind in ("portable", "cheats") for path in sorted((HOST_KERNELS / kind).glob("*.cu"))]


def kernel(name):
    """One of the kernels that lie beside this file."""
    return (HERE / "kernels" / f"{name}.cu").read_text()


def seed(name):
    """A shipped seed kernel."""
    return (ROOT / "kernels" / "seed" / f"{name}.cu").read_text()


def rows(place="", fault=""):
    """The right kernel `rows`, with a fault in one of its places."""
    return replaced(kernel("rows"), f"// {place}", fault) if place else kernel("rows")


def replaced(source, old, new):
    """The source with the one place where `old` stands changed."""
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in the source"
    return source.replace(old, new)


def shape(
    *, batch=1, heads=2, kv_heads=1, seqlen_q=130, seqlen_k=None, head_dim=64, causal=True,
    element_type=ElementType.BF16,
):  # fmt: skip
    return Scenario(
        batch=batch, heads=heads, kv_heads=kv_heads, seqlen_q=seqlen_q, seqlen_k=seqlen_k or seqlen_q,
        head_dim=head_dim, causal=causal, element_type=element_type,
    )  # fmt: skip
