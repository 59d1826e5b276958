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

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from fitness.evaluation import ScenarioCheck
from fitness.reference import Reference, Yardstick, euclidean_norm, relative

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
    """One rule's figures; `error` is None where it is not finite."""

    what: str
    error: float | None
    bound: float
    where: Callable[[], str]

    @property
    def complaint(self) -> str:
        if self.error is not None and self.error <= self.bound:
            return ""
        found = "not finite" if self.error is None else f"{self.error:.3g}"
        return f"{self.what} {found}, allowed {self.bound:.3g}{self.where()}"


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """One rule, still on the device: tensors of one number each, and the bound that those in `given` come to.

    `where` says where the error is largest; it looks only when asked, for nearly all findings need no complaint.
    """

    what: str
    error: torch.Tensor
    given: tuple[torch.Tensor, ...] = ()
    bound: Callable[..., float]
    where: Callable[[], str] = str

    def finding(self, numbers: Iterator[float]) -> _Finding:
        """What comes of the rule's numbers, the next ones in line."""
        error, *given = itertools.islice(numbers, 1 + len(self.given))
        return _Finding(what=self.what, error=_finite(error), bound=self.bound(*given), where=self.where)


def judge(o: torch.Tensor, lse: torch.Tensor, reference: Reference, case: Case) -> ScenarioCheck:
    """The verdict on o `[batch, seqlen_q, heads, head_dim]` and lse `[batch, heads, seqlen_q]`, with a reason in words.

    Tensors on the reference's device; o in the element type, in which the reference's `low_precision_o` is too.
    """
    yardstick, error, eps = reference.yardstick, o.float() - reference.o, torch.finfo(o.dtype).eps
    wrong, bad = _blind_rows(o, lse, reference), ~o.isfinite()
    rules = (
        _largest(o, yardstick, eps),
        _relative(error, yardstick, eps),
        _mean(error, yardstick, eps),
        _row(error, yardstick, eps),
        _lse(lse, reference, eps),
    )
    any_wrong, any_bad, *numbers = _fetched(
        wrong.any(), bad.any(), *(number for rule in rules for number in (rule.error, *rule.given))
    )
    line = iter(numbers)
    largest, relative, mean, row, lse_largest = findings = [rule.finding(line) for rule in rules]
    complaints = [_blind_complaint(wrong) if any_wrong else "", _bad_complaint(bad, "o") if any_bad else ""]
    complaints += [finding.complaint for finding in findings]
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


def _fetched(*numbers: torch.Tensor) -> list[float]:
    """The numbers in the host's memory, all in one transfer: each waits for the device. float64 holds them exactly."""
    fetched: list[float] = torch.stack([number.double() for number in numbers]).tolist()
    return fetched


def _largest(o: torch.Tensor, yardstick: Yardstick, eps: float) -> _Rule:
    difference = (o.float() - yardstick.o.float()).abs()

    def bound(pt: float, scale: float) -> float:
        ulp = eps * 2.0 ** math.floor(math.log2(scale)) if scale else 0.0
        return LARGEST_PT * pt + LARGEST_ULPS * ulp

    return _Rule(
        what="o: largest error", error=difference.max(), given=(yardstick.largest_error, yardstick.largest),
        bound=bound, where=lambda: _place(difference, ("batch", "query", "head", "column")),
    )  # fmt: skip


def _relative(error: torch.Tensor, yardstick: Yardstick, eps: float) -> _Rule:
    bound = (RELATIVE_EPS + RELATIVE_ROW_EPS / yardstick.row_norms.numel()) * eps
    return _Rule(
        what="o: relative RMS error", error=relative(euclidean_norm(error), yardstick.norm), bound=lambda: bound
    )


def _mean(error: torch.Tensor, yardstick: Yardstick, eps: float) -> _Rule:
    return _Rule(
        what="o: mean error", error=error.abs().mean(), given=(yardstick.mean_error, yardstick.mean),
        bound=lambda pt, size: MEAN_PT * pt + MEAN_EPS * eps * size,
    )  # fmt: skip


def _row(error: torch.Tensor, yardstick: Yardstick, eps: float) -> _Rule:
    errors = relative(torch.linalg.vector_norm(error, dim=-1), yardstick.row_norms)
    bounds = ROW_PT * yardstick.row_errors + ROW_EPS * eps
    excess = (errors / bounds).nan_to_num(nan=torch.inf)
    worst = excess.argmax()  # stays on the device: `take` needs no word of the host
    return _Rule(
        what="o: relative RMS error of one row", error=errors.take(worst), given=(bounds.take(worst),),
        bound=lambda bound: bound, where=lambda: _place(excess, ("batch", "query", "head")),
    )  # fmt: skip


def _lse(lse: torch.Tensor, reference: Reference, eps: float) -> _Rule:
    difference = torch.where(reference.lse == -torch.inf, 0.0, (lse - reference.lse).abs())
    return _Rule(
        what="lse: largest error", error=difference.max(), given=(reference.yardstick.largest_lse,),
        bound=lambda scale: LSE_EPS * eps + LSE_RELATIVE * scale,
        where=lambda: _place(difference, ("batch", "head", "query")),
    )  # fmt: skip


def _blind_rows(o: torch.Tensor, lse: torch.Tensor, reference: Reference) -> torch.Tensor:
    """Which rows `[batch, heads, seqlen_q]` see no key and are not nothing all the same."""
    blind = reference.lse == -torch.inf
    return blind & ((lse != -torch.inf) | (o != 0).any(-1).transpose(1, 2))


def _blind_complaint(wrong: torch.Tensor) -> str:
    place = _place(wrong.float(), ("batch", "head", "query"))
    return f"a row that sees no key needs zeros in o and -inf in lse; {int(wrong.sum())} rows lack them, first{place}"


def _bad_complaint(bad: torch.Tensor, name: str) -> str:
    place = _place(bad.float(), ("batch", "query", "head", "column"))
    return f"{name}: {int(bad.sum())} of {bad.numel()} elements are NaN or infinite, first{place}"


def _place(errors: torch.Tensor, names: tuple[str, ...]) -> str:
    worst = np.unravel_index(int(errors.nan_to_num(nan=torch.inf).argmax()), errors.shape)  # torch's imports SymPy
    return " at " + ", ".join(f"{name} {int(index)}" for name, index in zip(names, worst, strict=True))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
