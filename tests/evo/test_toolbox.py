"""How a search is built of its configuration, and the steps that are more than one call."""

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_records import failed, passed
from small_search import SEED, SOURCE, KnobJudge, SmallSearch, assemble, small_bank, small_config

from evo.answerers.answerer import AnswererError, Request
from evo.answerers.offline import OfflineAnswerer
from evo.answerers.replay import ReplayAnswerer
from evo.config import AnswererConfig, AnswererKind, Config, QuestionsConfig, SelectionKind, StopConfig
from evo.data import champion_folder
from evo.loop import evolve
from evo.seeds import read_seeds
from evo.settings import ConfigError
from evo.stop import StopSearch
from evo.toolbox import build_answerer, build_bank, build_sampler, named_rng, read_template
from fitness.evaluation import Evaluation, Status
from fitness.manifest import with_knobs
from population.archive import create_archive
from population.faults import RunFolderError
from population.individual import Individual
from population.run_folder import RunFolder, create_run_folder
from questions.entry import BankError
from questions.question import Moment


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run_folder(tmp_path, "run")


def run(config: Config, folder: RunFolder, judge: Any = None) -> tuple[SmallSearch, StopSearch]:
    with create_archive(folder) as archive:
        search = assemble(config, folder, archive, judge or KnobJudge())
        return search, search.run()


def wrong(source: str) -> Evaluation:
    return failed(source, Status.INCORRECT, "o differs from the reference")


class Everything:
    """A judge with one verdict for all."""

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict

    def evaluate_all(self, sources: list[str], on_done: Any = None) -> list[Any]:
        for place, source in enumerate(sources):
            on_done(place, self.verdict(source))
        return [self.verdict(source) for source in sources]


def test_the_steps_go_by_the_names_that_the_loop_calls(folder: RunFolder) -> None:
    with create_archive(folder) as archive:
        toolbox = assemble(small_config(), folder, archive, KnobJudge()).toolbox
        steps = ("stop", "sow", "select_parents", "vary", "evaluate", "select_survivors", "record", "checkpoint")
        assert all(callable(getattr(toolbox, name)) for name in (*steps, "crown"))


@pytest.mark.parametrize("selection", list(SelectionKind))
@pytest.mark.parametrize(("mu", "lambda_"), [(1, 1), (2, 1), (1, 4), (5, 2)])
def test_populations_of_any_size(folder: RunFolder, selection: SelectionKind, mu: int, lambda_: int) -> None:
    search, stop = run(small_config(selection=selection, mu=mu, lambda_=lambda_, generations=5), folder)
    assert stop.reason == "generation budget reached: 5 of 5"
    assert 1 <= len(search.state.population) <= mu
    assert search.state.next_birth == 5 * lambda_
    best = max(entry["best"] for entry in search.state.logbook)
    assert search.state.logbook[-1]["best"] == best == search.state.hall_of_fame[0].fitness.values[0]


def test_lexicase_on_a_single_scenario(folder: RunFolder) -> None:
    search, _ = run(
        small_config(selection=SelectionKind.lexicase), folder, Everything(lambda source: passed(source, {"x": 1.0}))
    )
    assert search.state.generation == 4
    assert len(search.state.population) == 3


def test_seeds_that_all_fail_end_the_search_with_the_reason(folder: RunFolder) -> None:
    search, stop = run(small_config(), folder, Everything(wrong))
    assert stop.reason == (
        "no seed passed, so there is nothing to ask about (INCORRECT: o differs from the reference)"
    )
    assert (search.state.population, list(search.state.hall_of_fame), list(search.state.logbook)) == ([], [], [])
    assert not list(folder.checkpoints.iterdir())


def test_a_generation_in_which_everything_fails_changes_nothing(folder: RunFolder) -> None:
    search, _ = run(
        small_config(generations=1),
        folder,
        Everything(lambda source: passed(source, {"x": 0.5}) if source == SOURCE else wrong(source)),
    )
    [only] = search.state.population
    assert only.source == SOURCE
    assert [each.source for each in search.state.hall_of_fame] == [SOURCE]
    last = search.state.logbook[-1]
    assert last["new"] >= 1
    assert (last["passed"], last["best"], last["mean"]) == (0, 0.5, 0.5)


def test_the_logbook_counts_what_was_asked_and_what_passed(folder: RunFolder) -> None:
    search, _ = run(small_config(generations=2), folder)
    first, second, third = search.state.logbook
    assert (first["generation"], first["asked"], first["new"], first["passed"]) == (0, 0, 1, 1)
    assert (second["asked"], third["asked"]) == (4, 4)
    history = search.memory.history
    for entry in (second, third):
        made = [each for each in history.attempts_of(entry["generation"]) if each.outcome == "child"]
        assert entry["new"] == len(made)
        assert entry["passed"] == sum(history.geomean(str(each.child_id)) > 0.0 for each in made)
    assert third["mean"] == pytest.approx(sum(each.fitness.values[0] for each in search.state.population) / 3)


def test_one_of_two_is_the_second_parent_of_the_other(folder: RunFolder) -> None:
    config = small_config()
    config = replace(config, evolution=replace(config.evolution, crossover_probability=1.0))
    with create_archive(folder) as archive:
        search = assemble(config, folder, archive, KnobJudge())
        seeds = [
            Individual.from_source(with_knobs(SOURCE, {"STAGES": stages}), birth=-stages, generation=0, operator="seed")
            for stages in (1, 2)
        ]
        for seed in seeds:
            seed.fitness.values = (1.0,)
        groups = search.toolbox.select_parents(seeds)
        assert len(groups) == 4
        assert all({one.id, other.id} == {seed.id for seed in seeds} for one, other in groups)
        assert all(len(group) == 1 for group in search.toolbox.select_parents(seeds[:1]))  # nobody to cross with


def test_the_search_stops_after_generations_without_anything_new(folder: RunFolder, tmp_path: Path) -> None:
    single = tmp_path / "one_knob_value.cu"
    text = SOURCE
    for line in SOURCE.splitlines():
        if "choices" in line:
            value = line.split("value = ")[1].split(",")[0]
            text = text.replace(line, line.split("choices")[0] + f"choices = [{value}]" + line[line.index("]") + 1 :])
    single.write_text(text, encoding="utf-8")
    config = replace(small_config(generations=None, barren_generations=3), seeds=[str(single)])
    search, stop = run(config, folder)
    assert stop.reason == "generations without a new candidate reached: 3 of 3"
    assert search.state.generation == 3
    assert {each.outcome for each in search.memory.history.attempts_of(3)} == {"unreadable"}


def test_seeds_by_name_and_by_path(tmp_path: Path) -> None:
    own = tmp_path / "own.cu"
    own.write_text(SOURCE, encoding="utf-8")
    tiled, mine = read_seeds(["tiled", str(own)])
    assert "attention_forward" in tiled
    assert mine == SOURCE
    own.write_bytes(own.read_bytes().replace(b"\n", b"\r\n"))
    assert read_seeds([str(own)]) == [mine]
    [champion] = read_seeds(["hopper_attention"])
    assert champion == (champion_folder() / "hopper_attention.cu").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["tield", "folder", "binary.cu"])
def test_a_seed_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary.cu").write_bytes(b"\xff\xfe\x00")
    names = r"cannot be read .*expected \.cu files or names among .*naive.*tiled, hopper_attention"
    with pytest.raises(ConfigError, match=names):
        read_seeds([name if name == "tield" else str(tmp_path / name)])


def test_a_seed_that_is_named_twice(tmp_path: Path) -> None:
    (tmp_path / "copy.cu").write_text(SOURCE + "\n\n", encoding="utf-8")
    names = [str(SEED), str(tmp_path / "copy.cu")]
    with pytest.raises(ConfigError, match="a kernel is among them twice"):
        read_seeds(names)


def test_a_template_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"style\.template: 'nowhere\.md' cannot be read"):
        read_template("nowhere.md")
    assert read_template(None).frame == read_template("").frame


def test_a_bank_file_of_ones_own_comes_on_top(tmp_path: Path) -> None:
    shipped = build_bank(Config())
    own = replace(small_config(), questions=QuestionsConfig(files=[str(Path(__file__).parent / "data" / "bank.yaml")]))
    assert len(build_bank(own)) == len(shipped) + len(small_bank())
    with pytest.raises(BankError, match="cannot be read"):
        build_bank(replace(own, questions=QuestionsConfig(files=[str(tmp_path / "none.yaml")])))


def test_each_purpose_has_a_generator_of_its_own() -> None:
    assert named_rng(1, "search").random() == named_rng(1, "search").random()
    assert len({named_rng(seed, name).random() for seed in (1, 2) for name in ("search", "questions")}) == 4
    state = random.getstate()
    build_sampler(small_config(), small_bank()).sample(Moment.ANY, ["portable"])
    assert random.getstate() == state


def test_the_sampler_follows_the_seed() -> None:
    def asked(rng_seed: int) -> list[str]:
        sampler = build_sampler(replace(small_config(), rng_seed=rng_seed), small_bank())
        return [sampler.sample(Moment.ANY, ["portable"]).id for _ in range(12)]

    assert asked(3) == asked(3) != asked(4)


def test_the_offline_answerer_needs_nothing() -> None:
    assert isinstance(build_answerer(small_config(), RunFolder(Path("nowhere")), spent_usd=0.0), OfflineAnswerer)


def test_a_replay_answers_from_another_runs_archive(tmp_path: Path, folder: RunFolder) -> None:
    search, _ = run(small_config(generations=1), folder)
    [first, *_] = search.memory.history.attempts_of(1)
    replay = replace(small_config(), answerer=AnswererConfig(kind=AnswererKind.replay, replay_from=str(folder.path)))
    answerer = build_answerer(replay, folder, spent_usd=0.0)
    assert isinstance(answerer, ReplayAnswerer)
    request = Request(number=first.number, attempt=0, prompt="", layer="memory", parent_sources=(SOURCE,))
    assert f"Change: {first.detail}" in answerer.answer(request).text
    again = create_run_folder(tmp_path, "again")
    other, _ = run(replace(replay, stop=StopConfig(generations=1)), again)
    assert [each.id for each in other.state.population] == [each.id for each in search.state.population]
    missing = replace(replay, answerer=replace(replay.answerer, replay_from=str(tmp_path / "nowhere")))
    with pytest.raises(RunFolderError, match="no such run"):
        build_answerer(missing, folder, spent_usd=0.0)


def test_a_replay_that_runs_dry_ends_the_search(tmp_path: Path, folder: RunFolder) -> None:
    run(small_config(generations=1), folder)
    replay = replace(small_config(), answerer=AnswererConfig(kind=AnswererKind.replay, replay_from=str(folder.path)))
    search, stop = run(replay, create_run_folder(tmp_path, "again"))
    assert re.search(r"has no reply to question [4-7], attempt 0", stop.reason)
    assert search.state.generation == 1


def test_an_answerer_without_a_key_is_refused(folder: RunFolder) -> None:
    openai = AnswererConfig(kind=AnswererKind.openai, model="m-1", api_key_env="EVO_TEST_KEY_THAT_IS_NOT_SET")
    with pytest.raises(AnswererError, match="EVO_TEST_KEY_THAT_IS_NOT_SET"):
        build_answerer(replace(small_config(), answerer=openai), folder, spent_usd=0.0)


def test_the_same_seed_makes_the_same_search(tmp_path: Path) -> None:
    searches = []
    for name in ("one", "other"):
        random.seed(name)
        search, _ = run(small_config(), create_run_folder(tmp_path, name))
        searches.append([each.id for each in search.state.population])
    assert searches[0] == searches[1]


def test_the_loop_ends_where_a_step_says_so(folder: RunFolder) -> None:
    with create_archive(folder) as archive:
        search = assemble(small_config(), folder, archive, KnobJudge())

        def no_more(_: object) -> None:
            raise StopSearch("no more")

        search.toolbox.register("stop", no_more)
        assert evolve(search.state, search.toolbox).reason == "no more"
        assert search.state.generation == 0
