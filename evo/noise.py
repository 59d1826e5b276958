"""How far a geometric mean may be off by measuring alone, and which ratios of two of them say more than that."""

import math

from fitness.evaluation import Evaluation

# Half a 95 % interval of how far an evaluation lies from the mean of many, beside what its own calls tell. Ten of one
# kernel on core26, on an H200 in one sitting, have a standard deviation of 0.17 %, 0.16 % of it beyond their intervals,
# in one worker as from worker to worker (docs/results/h200-evaluations-apart.json). On a processor it is too little to
# matter: there the calls alone leave 2 % open, and mostly more.
APART = 0.003


def noise(evaluation: Evaluation) -> float:
    """Half the 95 % interval of the geomean, as a share of it, from the scenarios' own intervals.

    That is of this evaluation's calls alone, and not of how far another one of the same kernel would lie.
    The geomean's logarithm is the mean of n independent logarithms, so its variance is their sum over n².
    """
    halves = [math.log(timing.speedup_high / timing.speedup_low) / 2 for timing in evaluation.timings]
    return math.sqrt(sum(half * half for half in halves)) / len(halves) if halves else 0.0


def beyond_noise(ratio: float, *noises: float) -> bool:
    """Whether a ratio of two geomeans is further from 1 than both may be off, each evaluation by `APART` besides.

    Each noise is half a 95 % interval of a logarithm; those of two that were measured apart add up by their squares.
    """
    return abs(math.log(ratio)) > math.hypot(*noises, *(APART for _ in noises))
