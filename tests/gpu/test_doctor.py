"""`evo doctor` on a machine with a GPU."""

import os
import re

import pytest
import torch

from evo.commands.doctor import findings

pytestmark = pytest.mark.gpu


def test_the_doctor_names_gpu_driver_compiler_and_baselines(machine, hopper):
    found = {finding.subject: finding for finding in findings(machine, os.environ, "NO_SUCH_KEY")}
    assert found["GPU 0"].found.startswith(f"{torch.cuda.get_device_name(0)}, sm_90a, ")
    assert re.fullmatch(r"\d+(\.\d+)+", found["driver"].found)
    assert re.fullmatch(r"1[2-9]\.\d+.*", found["NVRTC"].found)
    assert re.fullmatch(r"cupy-cuda1[23]x \d+\..*", found["CuPy"].found)
    assert re.fullmatch(r"(tokenspeed-fa3|fa3-fwd) \S+", found["baseline fa3"].found)
    assert found["baseline sdpa"].found == f"torch {torch.__version__.split('+')[0]}"
    assert [finding.subject for finding in found.values() if finding.remedy and finding.subject.startswith("GPU")] == []
