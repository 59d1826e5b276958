"""The setting of a baseline that is fastest is found once for each scenario."""

import torch

from fitness.baselines.fastest import FastestSetting
from fitness.judge_settings import JudgeSettings
from fitness.watch import Watch
from tests.fitness.fake_device import FakeBackend, scenario

WATCH = Watch(lambda _step, _deadline_s: None, JudgeSettings())


class TwoSettings:
    """A baseline whose second setting takes half as long on long scenarios, and twice as long on others."""

    name = "two"
    version = "1"

    def cannot(self, shape):
        return ""

    def calls(self, tensors, shape):
        slower, faster = (4.0, 2.0) if shape.seqlen_k > 100 else (2.0, 4.0)
        return {"one": lambda: torch.tensor(slower), "two": lambda: torch.tensor(faster)}


class Timed(FakeBackend):
    """A backend on which a call takes as many milliseconds as it gives."""

    def __init__(self):
        super().__init__({})
        self.captured = []

    def capture(self, call):
        self.captured.append(float(call()))
        return TimedReplay(self.captured[-1])


class TimedReplay:
    def __init__(self, milliseconds):
        self.output = milliseconds

    def time_ms(self):
        return self.output


def test_each_scenario_has_its_own_fastest_setting():
    fastest = FastestSetting(TwoSettings(), Timed())
    assert fastest.call(None, scenario(seqlen_k=40), WATCH).setting == "one"
    assert fastest.call(None, scenario(seqlen_k=400), WATCH).setting == "two"


def test_it_is_sought_once():
    backend = Timed()
    fastest = FastestSetting(TwoSettings(), backend)
    for _ in range(3):
        assert fastest.call(None, scenario(seqlen_k=400), WATCH).setting == "two"
    assert backend.captured == [4.0, 2.0, 2.0, 2.0]
