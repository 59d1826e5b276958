"""Whether an output is right: FlashAttention's rule on the largest error, and four tighter ones beside it.

With eps the spacing of the element type at 1 (2^-7 for bf16, 2^-10 for fp16), pt what PyTorch computes in the element
type, and every error taken against the float32 reference:

    largest   max|o - ref| <= 2 max|pt - ref| + 2 ulp(max|ref|)     (both sides of the difference in the element type)
    relative  |o - ref| / |ref| <= 0.55 eps + eps / rows                                  (root mean square, all of o)
    mean      mean|o - ref| <= 1.5 mean|pt - ref| + 3/4 eps mean|ref|
    row       |o_r - ref_r| / |ref_r| <= |pt_r - ref_r| / |ref_r| + eps                   (one query of one head)
    lse       max|lse - ref| <= 3/4 eps + 2^-16 max|lse|, and -inf at the same places

The first is the rule of FlashAttention's tests (hopper/test_flash_attn.py) with its absolute slack, made for outputs
near 1, put at two units in the last place of the largest output, so that zeros fail where all values are small. It
alone lets fp8 products and skipped keys pass at long lengths, where the largest error is that of a few early rows. The
row rule is what a fault in one place meets: a wrong last row, tile or head is diluted in any figure over all of o, and
a row has no more than head_dim elements to dilute it in. A right kernel rounds the probabilities and the result once
each, which costs a row at most eps / 2 each; of 55 000 right outputs the worst reached 0.83 of a bound. Probabilities
in fp8 cost every row 3 eps in bf16. Sums of rounded probabilities shift lse by up to eps / 2.

The bound on all of o knows nothing of pt, whose scores are rounded too: where they are large that costs tens of
percent. Rounding to nearest costs a number 0.21 eps (root mean square), so that a right kernel is at most 0.3 eps off:
0.21 for the probabilities, 0.21 for the result. The bound is not quite twice that. It leaves room for probabilities
under a fixed reference, which may all be rounded alike, by up to eps / 2; eps / rows is for outputs of few rows. What
it catches: docs/trust.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from fitness.evaluation import ScenarioCheck
from fitness.reference import Reference

LARGEST_PT, LARGEST_ULPS = 2.0, 2.0
RELATIVE_EPS, RELATIVE_ROW_EPS = 0.55, 1.0
MEAN_PT, MEAN_EPS = 1.5, 0.75
ROW_PT, ROW_EPS = 1.0, 1.0
LSE_EPS, LSE_RELATIVE = 0.75, 2.0**-16


@dataclass(frozen=True, kw_only=True)
class Case:
    """Which output is judged: the labels of its ScenarioCheck."""

    scenario: str
    distribution: str
    stage: str
    input_seed: int


@dataclass(frozen=True, kw_only=True)
class _Finding:
    """One rule's figures; `error` is None where it is not finite.

    `where` says where the error is largest; it looks only when asked, for nearly all findings need no complaint.
    """

    what: str
    error: float | None
    bound: float
    where: Callable[[], str] = str

    @property
    def complaint(self) -> str:
        if self.error is not None and self.error <= self.bound:
            return ""
        found = "not finite" if self.error is None else f"{self.error:.3g}"
        return f"{self.what} {found}, allowed {self.bound:.3g}{self.where()}"


def judge(o: torch.Tensor, lse: torch.Tensor, reference: Reference, case: Case) -> ScenarioCheck:
    """The verdict on o `[batch, seqlen_q, heads, head_dim]` and lse `[batch, heads, seqlen_q]`, with a reason in words.

    Tensors on the reference's device; o in the element type, in which the reference's `low_precision_o` is too.
    """
    error, pt_error = o.float() - reference.o, reference.low_precision_o.float() - reference.o
    eps = torch.finfo(o.dtype).eps
    largest = _largest(o, reference, eps)
    relative = _relative(error, reference, eps)
    mean = _mean(error, pt_error, reference, eps)
    row = _row(error, pt_error, reference, eps)
    lse_largest = _lse(lse, reference, eps)
    complaints = [_blind_rows(o, lse, reference), _not_finite(o, "o")]
    complaints += [finding.complaint for finding in (largest, relative, mean, row, lse_largest)]
    reason = "; ".join(complaint for complaint in complaints if complaint)
    return ScenarioCheck(
        scenario=case.scenario, distribution=case.distribution, stage=case.stage, input_seed=case.input_seed,
        passed=not reason, reason=reason,
        max_error=largest.error, max_error_bound=largest.bound,
        relative_rms_error=relative.error, relative_rms_bound=relative.bound,
        mean_error=mean.error, mean_error_bound=mean.bound,
        lse_max_error=lse_largest.error, lse_max_bound=lse_largest.bound,
        row_error=row.error, row_error_bound=row.bound,
    )  # fmt: skip


def _largest(o: torch.Tensor, reference: Reference, eps: float) -> _Finding:
    rounded = reference.o.to(o.dtype).float()
    difference = (o.float() - rounded).abs()
    scale = float(rounded.abs().max())
    ulp = eps * 2.0 ** math.floor(math.log2(scale)) if scale else 0.0
    pt = float((reference.low_precision_o.float() - rounded).abs().max())
    return _Finding(
        what="o: largest error", error=_finite(float(difference.max())), bound=LARGEST_PT * pt + LARGEST_ULPS * ulp,
        where=lambda: _place(difference, ("batch", "query", "head", "column")),
    )  # fmt: skip


def _relative(error: torch.Tensor, reference: Reference, eps: float) -> _Finding:
    # In float64: 10^8 squares do not add up in float32.
    found, norm = (torch.linalg.vector_norm(each, dtype=torch.float64) for each in (error, reference.o))
    bound = (RELATIVE_EPS + RELATIVE_ROW_EPS / reference.lse.numel()) * eps
    return _Finding(what="o: relative RMS error", error=_finite(float(_ratio(found, norm))), bound=bound)


def _mean(error: torch.Tensor, pt_error: torch.Tensor, reference: Reference, eps: float) -> _Finding:
    bound = MEAN_PT * float(pt_error.abs().mean()) + MEAN_EPS * eps * float(reference.o.abs().mean())
    return _Finding(what="o: mean error", error=_finite(float(error.abs().mean())), bound=bound)


def _row(error: torch.Tensor, pt_error: torch.Tensor, reference: Reference, eps: float) -> _Finding:
    norms = torch.linalg.vector_norm(reference.o, dim=-1)
    errors = _ratio(torch.linalg.vector_norm(error, dim=-1), norms)
    bounds = ROW_PT * _ratio(torch.linalg.vector_norm(pt_error, dim=-1), norms) + ROW_EPS * eps
    excess = (errors / bounds).nan_to_num(nan=torch.inf)
    worst = int(excess.argmax())
    return _Finding(
        what="o: relative RMS error of one row", error=_finite(float(errors.flatten()[worst])),
        bound=float(bounds.flatten()[worst]), where=lambda: _place(excess, ("batch", "query", "head")),
    )  # fmt: skip


def _lse(lse: torch.Tensor, reference: Reference, eps: float) -> _Finding:
    seen = reference.lse != -torch.inf
    difference = torch.where(seen, (lse - reference.lse).abs(), 0.0)
    scale = float(torch.where(seen, reference.lse.abs(), 0.0).max())
    return _Finding(
        what="lse: largest error", error=_finite(float(difference.max())), bound=LSE_EPS * eps + LSE_RELATIVE * scale,
        where=lambda: _place(difference, ("batch", "head", "query")),
    )  # fmt: skip


def _blind_rows(o: torch.Tensor, lse: torch.Tensor, reference: Reference) -> str:
    blind = reference.lse == -torch.inf
    wrong = blind & ((lse != -torch.inf) | (o != 0).any(-1).transpose(1, 2))
    if not wrong.any():
        return ""
    place = _place(wrong.float(), ("batch", "head", "query"))
    return f"a row that sees no key needs zeros in o and -inf in lse; {int(wrong.sum())} rows lack them, first{place}"


def _not_finite(o: torch.Tensor, name: str) -> str:
    bad = ~o.isfinite()
    if not bad.any():
        return ""
    place = _place(bad.float(), ("batch", "query", "head", "column"))
    return f"{name}: {int(bad.sum())} of {bad.numel()} elements are NaN or infinite, first{place}"


def _place(errors: torch.Tensor, names: tuple[str, ...]) -> str:
    worst = np.unravel_index(int(errors.nan_to_num(nan=torch.inf).argmax()), errors.shape)  # torch's imports SymPy
    return " at " + ", ".join(f"{name} {int(index)}" for name, index in zip(names, worst, strict=True))


def _ratio(errors: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
    """errors / norms, and 0 where both are 0; an error where nothing may stand is infinite."""
    return torch.where(errors == 0, torch.zeros_like(errors), errors / norms)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
