"""The evaluator that a run gets, on the host backend."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from small_search import write_table

from evo.auditors import FULL_SUITE, build_auditor
from evo.choices import Settled, settle
from evo.config import Config
from evo.data import seed_folder
from evo.settings import compose_config
from evo.suites import load_suite
from evo.workbench import open_evaluator
from fitness.audit_record import Finding
from fitness.evaluation import Environment
from fitness.faults import EnvironmentFault
from fitness.fork_server import start_fork_server
from fitness.probe import Machine, probe_machine
from fitness.worker import PRELOAD


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    start_fork_server(PRELOAD)
    return probe_machine()


def host(tmp_path: Path, machine: Machine) -> tuple[Config, Settled]:
    config = compose_config(["backend=host", "suite=smoke", f"backend.cache={tmp_path}"])
    return config, settle(config, machine)


def test_a_run_that_began_beside_another_baseline_is_not_gone_on_with(tmp_path: Path, machine: Machine) -> None:
    config, settled = host(tmp_path, machine)
    began = Environment(
        backend="host", device=settled.device, driver="", compiler="g++ 1.0 (z80)", baseline="sdpa",
        baseline_version="torch 0.1",
    )  # fmt: skip
    with (
        pytest.raises(EnvironmentFault, match=r"was g\+\+ 1\.0 \(z80\), now g\+\+ .*version was torch 0\.1"),
        open_evaluator(config, settled, machine, began=began),
    ):
        pass


def test_another_driver_is_no_other_place(tmp_path: Path, machine: Machine) -> None:
    config, settled = host(tmp_path, machine)
    with open_evaluator(config, settled, machine) as evaluator:
        here = evaluator.evaluate_all(["no kernel"])[0].environment
    with open_evaluator(config, settled, machine, began=replace(here, driver="1.0")) as evaluator:
        assert evaluator.evaluate_all(["no kernel"])[0].environment == here


def test_on_a_processor_an_audit_is_the_same_kernel_on_other_inputs(tmp_path: Path, machine: Machine) -> None:
    shape = "{batch:1,heads:1,seqlen_q:32,head_dim:64,causal:true}"
    words = ["backend=host", f"backend.cache={tmp_path}", "suite.name=one", f"suite.scenarios=[{shape}]"]
    config = compose_config([*words, "suite.edges=false"])
    settled = settle(config, machine)
    source = (seed_folder() / "naive.cu").read_text(encoding="utf-8")
    with open_evaluator(config, settled, machine) as evaluator:
        [evaluation] = evaluator.evaluate_all([source])
        auditor = build_auditor(config, settled, evaluator)
        assert auditor is not None
        check, *rest = auditor.audit(source, evaluation)
        assert auditor.audit_champion(source) == ()
    assert (check.name, check.finding) == ("new inputs", Finding.PASSED)
    assert {each.finding for each in rest} == {Finding.NOT_DUE}


def test_the_full_suite_is_there_to_be_loaded() -> None:
    assert len(load_suite(FULL_SUITE).scenarios) == 182


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["suite=smoke", "baseline=fa3"], "beside sdpa, not fa3; say baseline=sdpa"),
        (["suite=core8"], "on the suite smoke, not on core8"),
    ],
)
def test_a_table_of_another_suite_or_baseline_is_refused(
    tmp_path: Path, machine: Machine, words: list[str], said: str
) -> None:
    table = write_table(tmp_path / "table.jsonl", suite="smoke")
    config = compose_config(["backend=recorded", f"backend.table={table}", *words])
    with pytest.raises(EnvironmentFault, match=said), open_evaluator(config, settle(config, machine), machine):
        pass
