"""A search's evaluator over a Ray cluster of two nodes on this machine, with the host backend."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evo.choices import settle
from evo.config import Config
from evo.data import seed_folder
from evo.pools import open_workers
from evo.settings import compose_config
from evo.workbench import open_evaluator
from fitness.audit_record import Finding
from fitness.evaluation import Status
from fitness.faults import EnvironmentFault
from fitness.fork_server import start_fork_server
from fitness.pool import PooledEvaluator
from fitness.probe import Machine, probe_machine
from fitness.ray_worker import RayWorker
from fitness.sanitized import Sanitized
from fitness.worker import PRELOAD
from tests.fitness.fake_device import plan, scenario

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'question-evo[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

SHAPE = "{batch:1,heads:1,seqlen_q:32,head_dim:64,causal:true}"
NAIVE = (seed_folder() / "naive.cu").read_text(encoding="utf-8")


def variant(number: int) -> str:
    return NAIVE.replace("*/", f"*/\n// {number}", 1)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    start_fork_server(PRELOAD)
    return probe_machine()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.add_node(num_cpus=1)
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def configured(cluster: Any, tmp_path: Path, *words: str) -> Config:
    return compose_config(
        ["backend=host", f"backend.cache={tmp_path}", "backend.run_model_code=true", "suite.name=one",
         f"suite.scenarios=[{SHAPE}]", "suite.edges=false", "pool=ray", f"pool.address='{cluster.address}'", *words]
    )  # fmt: skip


def test_the_sanitizer_is_the_nodes_own(cluster: Any, tmp_path: Path, machine: Machine) -> None:
    """The file is no binary, so that none of its tools can say anything, where the node has them at all."""
    config = configured(cluster, tmp_path, "pool.workers=1", "pool.start_s=40")
    (tmp_path / "kernel.cubin").write_bytes(b"none")
    job = Sanitized(plans=((plan(scenario()), tmp_path / "kernel.cubin"),), device_index=0, rng_seed=1)
    with open_workers(config, settle(config, machine), machine) as [worker]:
        assert isinstance(worker, RayWorker)
        check = worker.check("memcheck", job)
    assert (check.name, check.finding) == ("memcheck", Finding.SKIPPED)


def test_candidates_are_measured_on_two_nodes_and_those_of_a_lost_one_again(
    cluster: Any, tmp_path: Path, machine: Machine
) -> None:
    config = configured(cluster, tmp_path, "pool.workers=2", "pool.start_s=40")
    settled = settle(config, machine)
    with open_evaluator(config, settled, machine) as judge:
        assert isinstance(judge, PooledEvaluator)
        found = judge.evaluate_all([variant(number) for number in range(3)])
        assert [each.status for each in found] == [Status.PASSED] * 3
        assert {each.environment.device for each in found} == {settled.device}
        nodes = {node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")}
        assert len(nodes) == 2

        heard: list[int] = []

        def lose_a_node(place: int, _evaluation: object) -> None:
            if not heard:
                cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
            heard.append(place)

        again = judge.evaluate_all([variant(number) for number in range(10, 16)], on_done=lose_a_node)
        assert [each.status for each in again] == [Status.PASSED] * 6
        assert sorted(heard) == list(range(6))  # each once


def test_a_cluster_without_a_place_is_said_in_one_line(cluster: Any, tmp_path: Path, machine: Machine) -> None:
    config = configured(cluster, tmp_path, "pool.workers=1", "pool.start_s=1")
    settled = settle(config, machine)
    while nodes := [node for node in cluster.list_all_nodes() if node is not cluster.head_node]:
        cluster.remove_node(nodes[0], allow_graceful=False)
    with (
        pytest.raises(EnvironmentFault, match="had no processor free for a worker within 1 s"),
        open_workers(config, settled, machine),
    ):
        pass
