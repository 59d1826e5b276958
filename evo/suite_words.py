"""The words of a command line that make the suite of a run again, a shipped one or one of its user's own."""

import json
from collections.abc import Sequence

from evo.data import conf_folder
from evo.run_settings import recorded_settings
from evo.settings import ConfigError
from evo.suites import load_suite
from fitness.evaluation import Evaluation
from fitness.scenario import Scenario
from population.archive_reader import read_archive
from population.run_folder import RunFolder


def suite_words(runs: Sequence[RunFolder], evaluation: Evaluation) -> list[str]:
    """By name for a shipped suite, else by its timed shapes. `evaluation` is one of these runs, best one with timings.

    Raises ConfigError where no run tells its suite's shapes, and RunFault.
    """
    name, timed = evaluation.suite, set(evaluation.speedups)
    if (conf_folder() / "suite" / f"{name}.yaml").is_file():
        shipped = {scenario.name for scenario in load_suite(name).scenarios}
        if not timed or timed == shipped:
            return [f"suite={name}"]
    scenarios = {scenario.name: scenario for run in runs for scenario in _scenarios(run)}
    if not scenarios or not timed <= scenarios.keys():
        raise ConfigError(f"no run tells all shapes of the suite {name}; expected them in the settings of one")
    shapes = [_shape(scenario) for found, scenario in scenarios.items() if not timed or found in timed]
    return [f"suite.name={json.dumps(name)}", "suite.edges=false", f"suite.scenarios=[{','.join(shapes)}]"]


def _scenarios(run: RunFolder) -> list[Scenario]:
    with read_archive(run) as archive:
        return [Scenario.from_json(each) for each in recorded_settings(archive).get("suite.scenarios", [])]


def _shape(scenario: Scenario) -> str:
    """A scenario as Hydra reads it."""
    fields = scenario.to_json().items()
    return "{" + ",".join(f"{key}:{str(value).lower()}" for key, value in fields) + "}"
