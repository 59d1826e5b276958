"""The command line: right values arrive, wrong ones get one line that says what was expected."""

import pytest

from evo.config import BackendKind, StyleKind
from evo.settings import ConfigError, compose_config, each_variant


def test_defaults() -> None:
    config = compose_config([])
    assert config.suite.name == "auto"
    assert config.backend.kind is BackendKind.auto
    assert config.style.kind is StyleKind.question
    assert config.stop.evaluations == 60
    assert config.seeds is None


def test_core26_is_the_published_list() -> None:
    scenarios = compose_config(["suite=core26"]).suite.scenarios
    assert len(scenarios) == 26
    first, last = scenarios[0], scenarios[-1]
    assert (first.batch, first.heads, first.seqlen_q, first.head_dim, first.causal) == (32, 32, 512, 64, False)
    assert (last.batch, last.seqlen_q, last.seqlen_k, last.heads, last.causal) == (2, 2048, 512, 16, False)
    assert {(s.batch, s.seqlen_q) for s in scenarios[:18]} == {(32, 512), (4, 4096), (1, 16384)}
    assert all(s.heads * s.head_dim == 2048 for s in scenarios[:18])


@pytest.mark.parametrize(("suite", "count"), [("core26", 26), ("fa3_36", 36), ("avo_24", 24)])
def test_suites_have_as_many_scenarios_as_their_names_say(suite: str, count: int) -> None:
    assert len(compose_config([f"suite={suite}"]).suite.scenarios) == count


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("evolution.muu=3", "evolution.muu is no option; did you mean evolution.mu?"),
        ("suite=core62", "suite=core62: did you mean core26?"),
        ("rng_seed=None", "rng_seed: Value 'None' of type 'str' could not be converted to Integer"),
        ("rng_seed=1e3", "rng_seed: Value '1000.0' of type 'float'"),
        ("rng_seed=", "rng_seed: Value '' of type 'str'"),
        ("rng_seed=-1", "rng_seed=-1: expected at least 0"),
        ("evolution.mu=abc", "evolution.mu: Value 'abc'"),
        ("evolution.mu=0", "evolution.mu=0: expected at least 1"),
        ("evolution.mu=-3", "evolution.mu=-3: expected at least 1"),
        ("evolution.mu=2.5", "evolution.mu: Value '2.5'"),
        ("questions.noise=nan", "questions.noise=nan: expected a finite number"),
        ("stop.target_geomean=inf", "stop.target_geomean=inf: expected a finite number"),
        ("backend=recorded", "backend.table is not set"),
        ("answerer=openai", "answerer.model is not set"),
        ("answerer=replay", "answerer.replay_from is not set"),
        ("backend.kind=gpu", "expected one of [auto, cuda, host, recorded]"),
        ("suite=core26,avo_24", "to sweep over the values, add -m"),
        ("suite={a", "quote values"),
        ("a=b=c", "quote values"),
        ("seeds=[]", "expected at least one seed kernel"),
        ("judge.precision=-0.1", "judge.precision=-0.1: expected at least 0"),
        ("judge.precision=1", "judge.precision=1.0: expected a share below 1"),
        ("suite.repeats=0", "suite.repeats=0: expected at least 1"),
        ("suite.distributions=[]", "suite.distributions=[]: expected at least one"),
        ("name=a/b", "expected a folder's name"),
        ("name=None", "expected a folder's name"),
    ],
)
def test_bad_override_gets_one_line(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        compose_config([override])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_off_is_false_where_a_flag_is_expected() -> None:
    assert compose_config(["backend.run_model_code=off"]).backend.run_model_code is False


def test_leading_zeros_are_a_number() -> None:
    assert compose_config(["rng_seed=007"]).rng_seed == 7


def test_every_swept_value_is_checked_beforehand() -> None:
    variants = list(each_variant(["style=question,open", "rng_seed=0,1,2", "evolution.mu=4"]))
    assert variants == [
        ["style=question", "rng_seed=0", "evolution.mu=4"],
        ["style=open", "rng_seed=1", "evolution.mu=4"],
        ["style=open", "rng_seed=2", "evolution.mu=4"],
    ]


def test_nobody_races_where_specialists_are_to_live() -> None:
    with pytest.raises(ConfigError, match="leave one of the two out"):
        compose_config(["judge.race=true", "selection=lexicase"])
    assert compose_config(["judge.race=true"]).judge.race
