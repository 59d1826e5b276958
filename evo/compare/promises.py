"""What a reply promised, and whether it came."""

import re
from typing import Final

from fitness.evaluation import Evaluation

_NUMBER: Final = r"(?<![\d.,])\d{1,3}(?:[.,]\d+)?"
_SHARE: Final = re.compile(
    rf"(?:({_NUMBER})\s*(?:%\s*)?(?:to|or|and|[-–—…])\s*)?({_NUMBER})\s*(?:%|per ?cent)"
    r"(?!\s*(?:of\b|slower|less|more time))"
)


def promised_gain(expectation: str) -> float | None:
    """The least gain that is expected where most is, 0.04 for "1 to 2 % at 512, 4 to 10 % beyond"; None without any.

    "0 to 1 %" promises nothing that could be broken, so it is none. A share is taken for a gain, unless it is one "of"
    something, or a loss.
    """
    ranges = [(_number(most), _number(least or most)) for least, most in _SHARE.findall(expectation)]
    least = min(max(ranges)) if ranges else 0.0
    return least / 100 if least > 0 else None


def best_scenario_gain(child: Evaluation, parent: Evaluation) -> float | None:
    """The greatest gain of any scenario, as a share; None where none was timed of both.

    Of many scenarios the greatest gain is also the one that noise has helped most.
    """
    before = {timing.scenario: timing.speedup for timing in parent.timings}
    gains = [timing.speedup / before[timing.scenario] - 1 for timing in child.timings if timing.scenario in before]
    return max(gains, default=None)


def _number(text: str) -> float:
    return float(text.replace(",", "."))
