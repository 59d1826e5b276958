"""The setting of a baseline that is fastest is found once for each scenario, among those that are right."""

import pytest
import torch

from fitness.baselines.fastest import FastestSetting
from fitness.faults import EnvironmentFault
from fitness.inputs import Distribution, draw_inputs
from fitness.judge_settings import JudgeSettings
from fitness.watch import Watch
from tests.fitness.fake_device import FakeBackend, FakeBaselineReplay, empty_tensors, right_o, scenario

WATCH = Watch(lambda _step, _deadline_s: None, JudgeSettings())


class Settings:
    """A baseline: by setting, the milliseconds that a call takes and what it gives."""

    name = "several"
    version = "1"

    def __init__(self, **ways):
        self.ways = ways

    def cannot(self, shape):
        return ""

    def calls(self, tensors, shape):
        def call(setting, milliseconds, attend):
            def attended():
                return attend(tensors, shape)

            attended.setting, attended.milliseconds = setting, milliseconds
            return attended

        return {setting: call(setting, *way) for setting, way in self.ways.items()}


class Timed(FakeBackend):
    """A backend on which a call takes as long as its way says."""

    def __init__(self):
        super().__init__({})
        self.captured = []

    def capture(self, call):
        self.captured.append(call.setting)
        return TimedReplay(self, call)


class TimedReplay(FakeBaselineReplay):
    def __init__(self, backend, call):
        super().__init__(backend, call)
        self.milliseconds = call.milliseconds

    def time_ms(self):
        return self.milliseconds


def fp8(tensors, shape):
    return right_o(tensors, shape).to(torch.float8_e4m3fn).to(tensors.q.dtype)


def refuses(tensors, shape):
    raise RuntimeError("no kernel image")


def fastest_of(shape=None, backend=None, **ways):
    shape = shape or scenario()
    tensors = empty_tensors(shape)
    draw_inputs(Distribution.NORMAL, 3, tensors.q, tensors.k, tensors.v)
    found = FastestSetting(Settings(**ways), backend or Timed())
    return lambda: found.call(tensors, shape, WATCH)


def test_the_fastest_setting_is_taken():
    assert fastest_of(one=(2.0, right_o), two=(4.0, right_o))().setting == "one"
    assert fastest_of(one=(4.0, right_o), two=(2.0, right_o))().setting == "two"


def test_it_is_sought_once():
    backend = Timed()
    call = fastest_of(backend=backend, one=(4.0, right_o), two=(2.0, right_o))
    assert [call().setting for _ in range(3)] == ["two"] * 3
    assert backend.captured == ["one", "two", "two", "two"]


@pytest.mark.parametrize(
    ("attend", "reason"),
    [(fp8, "o: relative RMS error 0.0271, allowed 0.00436"), (refuses, "RuntimeError: no kernel image")],
)
def test_a_faster_setting_that_is_wrong_or_breaks_is_left_out_and_the_log_says_why(attend, reason, caplog):
    assert fastest_of(one=(4.0, right_o), two=(2.0, attend))().setting == "one"
    assert f"baseline setting two is left out on {scenario().name}: " in caplog.text
    assert reason in caplog.text


def breaks_the_device(tensors, shape):
    raise torch.AcceleratorError("an illegal memory access was encountered")


def leaves_no_memory(tensors, shape):
    raise RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate")


def test_a_broken_device_ends_the_search_for_a_setting():
    with pytest.raises(EnvironmentFault, match=r"the baseline \(two\) broke the device on .*: an illegal memory acc"):
        fastest_of(one=(4.0, right_o), two=(2.0, breaks_the_device), three=(1.0, right_o))()


def test_want_of_memory_is_no_word_on_a_setting():
    with pytest.raises(RuntimeError, match="ALLOC_FAILED"):
        fastest_of(one=(4.0, right_o), two=(2.0, leaves_no_memory))()


def test_an_output_of_another_shape_is_a_reason_too(caplog):
    def short(tensors, shape):
        return right_o(tensors, shape)[:, :3]

    assert fastest_of(one=(4.0, right_o), two=(2.0, short))().setting == "one"
    assert "baseline setting two is left out" in caplog.text


def test_a_baseline_without_a_setting_that_is_right_is_a_fault_of_the_environment():
    with pytest.raises(EnvironmentFault, match=r"several computes .* at no setting \(one: .*; two: RuntimeError: no k"):
        fastest_of(one=(4.0, fp8), two=(2.0, refuses))()
