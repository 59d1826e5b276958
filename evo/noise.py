"""How far a geometric mean may be off by measuring alone, and which ratios of two of them say more than that."""

import math

from fitness.evaluation import Evaluation


def noise(evaluation: Evaluation) -> float:
    """Half the 95 % interval of the geomean, as a share of it, from the scenarios' own intervals.

    The geomean's logarithm is the mean of n independent logarithms, so its variance is their sum over n².
    """
    halves = [math.log(timing.speedup_high / timing.speedup_low) / 2 for timing in evaluation.timings]
    return math.sqrt(sum(half * half for half in halves)) / len(halves) if halves else 0.0


def beyond_noise(ratio: float, *noises: float) -> bool:
    """Whether a ratio of two geomeans is further from 1 than both may be off.

    Each noise is half a 95 % interval of a logarithm; those of two that were measured apart add up by their squares.
    """
    return abs(math.log(ratio)) > math.hypot(*noises)
