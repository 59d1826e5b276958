"""Whether anybody answers a search at all."""

from evo.history import History, Outcome
from evo.stop import GivenUp

SILENT_GENERATIONS = 3  # as many as faults of the environment in a row


def require_answers(history: History, generation: int, *, begun_after: int) -> None:
    """Raise GivenUp where no question of the last generations got a reply.

    Those up to `begun_after` do not count: whoever goes on with a run has seen to it that somebody answers.
    """
    if generation - begun_after < SILENT_GENERATIONS:
        return
    last = range(generation - SILENT_GENERATIONS + 1, generation + 1)
    attempts = [attempt for each in last for attempt in history.attempts_of(each)]
    if attempts and all(attempt.outcome is Outcome.UNANSWERED for attempt in attempts):
        asked = f"{len(attempts)} questions of {SILENT_GENERATIONS} generations"
        raise GivenUp(f"the answerer gave up: none of {asked} got a reply; the last: {attempts[-1].detail}")
