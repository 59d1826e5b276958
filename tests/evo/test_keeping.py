"""What a checkpoint holds comes back, and nothing younger with it. tests/evo/test_resume.py has whole runs."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from deap import tools
from small_records import attempt, failed, individual, passed
from small_search import small_bank

from evo.attempt_events import recorded_attempts
from evo.evaluation_records import record_evaluation
from evo.history import History, Outcome
from evo.keeping import Keeper, newest_checkpoint
from evo.loop import State
from fitness.evaluation import Evaluation, Status
from population.archive import Archive, create_archive
from population.checkpoint import Checkpoint
from population.faults import CheckpointError
from population.individual import Individual, set_fitness, similar
from population.run_folder import RunFolder, create_run_folder
from questions.credit import Outcome as Credit
from questions.question import Moment
from questions.sampler import QuestionSampler


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


@pytest.fixture
def archive(run: RunFolder) -> Iterator[Archive]:
    with create_archive(run) as made:
        yield made


def keeper(run: RunFolder, archive: Archive, *, keep: int = 3, hall: int = 3) -> Keeper:
    return Keeper(
        run=run,
        archive=archive,
        history=History(),
        sampler=QuestionSampler(small_bank(), random.Random(1)),
        search_rng=random.Random(2),
        keep=keep,
        hall_of_fame_size=hall,
        settings_fingerprint="settings",
        elapsed_s=lambda: 12.3456,
    )


def judged(keeper: Keeper, one: Individual, evaluation: Evaluation) -> Individual:
    """Recorded, remembered and with its fitness."""
    keeper.archive.record_individual(one)
    record_evaluation(keeper.archive, one.id, evaluation)
    keeper.history.add_individual(one)
    keeper.history.add_evaluation(one.id, evaluation)
    set_fitness(one, evaluation.geomean)
    return one


def a_state(keeper: Keeper) -> State:
    """After one generation: two equals in the population, two failures in the logbook."""
    seed = judged(keeper, individual("seed", -1), passed("seed", {"x": 0.7}))
    equals = [
        judged(keeper, individual(name, place, seed), passed(name, {"x": 1.1})) for place, name in enumerate("ab")
    ]
    dead = judged(keeper, individual("dead", 2, seed), failed("dead", Status.TIMEOUT, "20 s"))
    for place, child in enumerate((*equals, dead)):
        keeper.history.add_attempt(attempt(place, (seed,), child))
    hall = tools.HallOfFame(keeper.hall_of_fame_size, similar=similar)
    hall.update([seed, *equals])
    logbook = tools.Logbook()
    logbook.record(generation=0, best=0.7)
    logbook.record(generation=1, best=1.1, mean=0.1 + 0.2)
    return State(
        generation=1, population=[*equals, seed], hall_of_fame=hall, logbook=logbook, next_birth=3, barren_generations=2
    )


def names(individuals: list[Individual] | tools.HallOfFame) -> list[tuple[str, float]]:
    return [(each.source.strip(), each.fitness.values[0]) for each in individuals]


def saved(run: RunFolder) -> Checkpoint:
    checkpoint = newest_checkpoint(run, "settings", pytest.fail)
    assert checkpoint is not None
    return checkpoint


def test_a_state_comes_back_to_the_last_bit(run: RunFolder, archive: Archive) -> None:
    writing = keeper(run, archive)
    before = a_state(writing)
    writing.save(before)
    reading = keeper(run, archive)
    after = reading.restore(saved(run), small_bank())
    assert (after.generation, after.next_birth, after.barren_generations) == (1, 3, 2)
    assert names(after.population) == names(before.population) == [("a", 1.1), ("b", 1.1), ("seed", 0.7)]
    assert names(after.hall_of_fame) == names(before.hall_of_fame) == [("b", 1.1), ("a", 1.1), ("seed", 0.7)]
    assert list(after.logbook) == list(before.logbook)
    assert reading.history.attempts_of(1) == writing.history.attempts_of(1)
    assert reading.history.evaluations() == writing.history.evaluations()
    assert saved(run).counters["elapsed_ms"] == 12346


def test_generators_and_the_sampler_go_on_where_they_stood(run: RunFolder, archive: Archive) -> None:
    writing = keeper(run, archive)
    state = a_state(writing)
    random.seed(99)
    question = writing.sampler.sample(Moment.ANY, ["portable"])
    writing.sampler.credit(question.id, Credit(answered=True, compiled=True, right=True, gain=1.05))
    writing.save(state)

    def draws(keeper: Keeper) -> list[object]:
        asked = [keeper.sampler.sample(Moment.ANY, ["portable"]).id for _ in range(5)]
        return [random.random(), keeper.search_rng.random(), asked, keeper.sampler.state()]

    expected = draws(writing)
    random.seed("something else")
    reading = keeper(run, archive)
    reading.restore(saved(run), small_bank())
    assert draws(reading) == expected


def test_younger_rows_are_not_remembered_yet(run: RunFolder, archive: Archive) -> None:
    writing = keeper(run, archive)
    state = a_state(writing)
    writing.save(state)
    younger = judged(writing, individual("younger", 3, state.population[0]), passed("younger", {"x": 9.0}))
    reading = keeper(run, archive)
    reading.restore(saved(run), small_bank())
    assert not reading.history.knows(younger.id)
    assert len(reading.history.evaluations()) == 4


def test_the_later_of_two_makings_of_a_generation_counts(run: RunFolder, archive: Archive) -> None:
    first = keeper(run, archive)
    state = a_state(first)
    first.save(state)
    second = keeper(run, archive)
    seed = state.population[-1]
    second.history.add_attempt(attempt(0, (seed,), None, outcome=Outcome.UNANSWERED, detail="503"))
    second.history.add_attempt(attempt(1, (seed,), state.population[1]))
    second.save(state)
    assert [(made.number, made.outcome) for made in recorded_attempts(archive)] == [
        (0, Outcome.UNANSWERED),
        (1, Outcome.CHILD),
        (2, Outcome.CHILD),
    ]


def test_a_new_search_draws_what_its_seed_says(run: RunFolder, archive: Archive) -> None:
    def first_draw(rng_seed: int) -> float:
        keeper(run, archive).fresh(rng_seed)
        return random.random()

    assert first_draw(1) == first_draw(1) != first_draw(2)
    state = keeper(run, archive, hall=5).fresh(1)
    assert (state.generation, state.next_birth, state.population, state.hall_of_fame.maxsize) == (0, 0, [], 5)


def test_there_may_be_no_checkpoint(run: RunFolder) -> None:
    assert newest_checkpoint(run, "settings", pytest.fail) is None


def test_a_checkpoint_of_other_settings_is_refused(run: RunFolder, archive: Archive) -> None:
    writing = keeper(run, archive)
    writing.save(a_state(writing))
    with pytest.raises(CheckpointError, match=r"gen-0001\.json: written under other settings than this run's archive"):
        newest_checkpoint(run, "other settings", pytest.fail)


def test_an_individual_that_the_archive_lacks_is_named(run: RunFolder, archive: Archive, tmp_path: Path) -> None:
    writing = keeper(run, archive)
    state = a_state(writing)
    writing.save(state)
    with create_archive(create_run_folder(tmp_path, "empty")) as empty:
        reading = keeper(run, empty)
        with pytest.raises(CheckpointError, match=f"{state.population[0].id} is not in the archive"):
            reading.restore(saved(run), small_bank())
