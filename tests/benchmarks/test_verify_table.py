"""What is kept of a table of kernels that a fault cut short."""

import json

from small_records import failed, passed
from small_search import MACHINE

from benchmarks.verify_table import tell
from fitness.evaluation import Evaluation, Status


def test_what_was_judged_is_written_with_what_ended_it(tmp_path):
    out = tmp_path / "record.json"
    found = {"a.cu": passed("a", {"x": 2.0}), "b.cu": failed("b", Status.INCORRECT, "o differs")}
    tell(found, "the device is lost", out, MACHINE, {"nvrtc": "NVRTC 13.0.88"})
    record = json.loads(out.read_text(encoding="utf-8"))
    assert (record["ended_by"], record["versions"]["nvrtc"]) == ("the device is lost", "NVRTC 13.0.88")
    names = [each.pop("kernel") for each in record["evaluations"]]
    assert dict(zip(names, map(Evaluation.from_json, record["evaluations"]), strict=True)) == found


def test_where_nothing_was_judged_nothing_is_written(tmp_path):
    tell({}, "the device is lost", tmp_path / "record.json", MACHINE, {})
    assert list(tmp_path.iterdir()) == []
