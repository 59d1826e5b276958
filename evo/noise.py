"""How far a geometric mean may be off by measuring alone."""

import math

from fitness.evaluation import Evaluation


def noise(evaluation: Evaluation) -> float:
    """Half the 95 % interval of the geomean, as a share of it, from the scenarios' own intervals.

    The geomean's logarithm is the mean of n independent logarithms, so its variance is their sum over n².
    """
    halves = [math.log(timing.speedup_high / timing.speedup_low) / 2 for timing in evaluation.timings]
    return math.sqrt(sum(half * half for half in halves)) / len(halves) if halves else 0.0
