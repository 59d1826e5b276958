"""What travels to a node of a Ray cluster: binaries by their contents, for the node has other files."""

from pathlib import Path

from fitness.ray_worker import ShippedCalls
from fitness.sanitized import Sanitized
from tests.fitness.fake_device import plan, scenario


def test_a_sanitizers_job_arrives_with_each_binary_beside_its_plan(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    plans = (plan(scenario()), plan(scenario(head_dim=64)), plan(scenario(batch=2)))
    for name in ("a", "b"):
        (here / f"{name}.cubin").write_bytes(name.encode())
    paths = [here / "a.cubin", here / "b.cubin", here / "a.cubin"]
    job = Sanitized(plans=tuple(zip(plans, paths, strict=True)), device_index=0, rng_seed=7)
    arrived = ShippedCalls.of(job).unpacked(there)
    assert (arrived.device_index, arrived.rng_seed) == (0, 7)
    assert [each for each, _ in arrived.plans] == list(plans)
    assert [path.read_bytes() for _, path in arrived.plans] == [b"a", b"b", b"a"]
    assert {path.parent for _, path in arrived.plans} == {there}
    assert {Path(path).suffix for _, path in arrived.plans} == {".cubin"}
