"""`evo doctor`: what this machine has, and what to install for what it lacks."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evo.choices import settle
from evo.console import say
from evo.settings import ConfigError, compose_config
from fitness.faults import EnvironmentFault
from fitness.fork_server import start_fork_server
from fitness.probe import Gpu, Machine, probe_machine
from fitness.worker import PRELOAD


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing looked for: what was found, and what to do where it is missing or broken ("" where all is well)."""

    subject: str
    found: str
    remedy: str = ""


def doctor(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0 where candidates can be judged here as configured, 2 where not."""
    config = compose_config(arguments)
    start_fork_server(PRELOAD)
    machine = probe_machine()
    table = Table(title="what is here")
    for column in ("", "found", "what to do"):
        table.add_column(column)
    for finding in findings(machine, os.environ, config.answerer.api_key_env):
        table.add_row(Text(finding.subject), Text(finding.found), Text(finding.remedy))
    console.print(table)
    try:
        settled = settle(config, machine)
    except (EnvironmentFault, ConfigError) as fault:
        raise EnvironmentFault(f"nothing can be judged here as configured: {fault}") from fault
    if settled.gpu is None and not machine.gxx:
        raise EnvironmentFault("nothing can be judged here: no GPU and no g++; install g++ (Debian: apt install g++)")
    say(console, f"a run would use: {', '.join(choice.value for choice in settled.choices)}")
    return 0


def findings(machine: Machine, environment: Mapping[str, str], api_key_env: str) -> list[Finding]:
    """What was looked for, in the order in which things build on each other."""
    packages = machine.packages
    return [
        Finding(subject="processor", found=machine.processor),
        _present("g++", machine.gxx, "the host backend needs it; Debian: apt install g++"),
        _present("torch", packages.get("torch", ""), "pip install torch"),
        *_gpus(machine),
        _present("NVRTC", machine.nvrtc, "pip install nvidia-cuda-nvrtc nvidia-cuda-runtime (driver 580 or newer)"),
        _cupy(packages),
        _present("nvidia-ml-py", packages.get("nvidia-ml-py", ""), "for clocks: pip install nvidia-ml-py"),
        *_baselines(machine),
        _endpoint(environment, api_key_env),
    ]


def _present(subject: str, found: str, remedy: str) -> Finding:
    return Finding(subject=subject, found=found) if found else Finding(subject=subject, found="missing", remedy=remedy)


def _gpus(machine: Machine) -> list[Finding]:
    if not machine.gpus:
        remedy = machine.gpu_trouble or "none is needed for backend=host"
        return [Finding(subject="GPU", found="none", remedy=remedy)]
    gpus = [
        Finding(
            subject=f"GPU {gpu.index}",
            found=f"{gpu.name}, {gpu.arch}, {gpu.sm_count} multiprocessors, {gpu.memory_gib:.0f} GiB",
            remedy="" if gpu.capability >= (8, 0) else "sm_80 or newer is needed for bf16 kernels",
        )
        for gpu in machine.gpus
    ]
    return [*gpus, _present("driver", machine.driver, "unknown without nvidia-ml-py")]


def _cupy(packages: Mapping[str, str]) -> Finding:
    names = [name for name in packages if name.startswith("cupy-cuda")]
    if len(names) > 1:
        return Finding(subject="CuPy", found=", ".join(names), remedy="two of them disturb each other: remove one")
    return _present("CuPy", f"{names[0]} {packages[names[0]]}" if names else "", "pip install cupy-cuda13x")


def _baselines(machine: Machine) -> list[Finding]:
    """FlashAttention is worth installing only where there is a GPU that it runs on."""
    packages = machine.packages
    fa3 = [f"{name} {packages[name]}" for name in ("tokenspeed-fa3", "fa3-fwd") if name in packages]
    hopper = any(gpu.capability[0] == 9 for gpu in machine.gpus)
    fa4 = packages.get("flash-attn-4")
    return [
        Finding(subject="baseline sdpa", found=f"torch {packages.get('torch', 'missing')}"),
        Finding(
            subject="baseline cudnn",
            found=f"torch {packages.get('torch', 'missing')}" if machine.gpus else "needs a GPU",
        ),
        Finding(
            subject="baseline fa3",
            found=fa3[0] if fa3 else "missing",
            remedy="" if fa3 else "pip install tokenspeed-fa3" if hopper else "none: it needs a Hopper GPU (sm_90)",
        ),
        Finding(
            subject="baseline fa4",
            found=fa4 or "missing",
            remedy="" if fa4 else _remedy_of_fa4(machine.gpus),
        ),
    ]


def _remedy_of_fa4(gpus: Sequence[Gpu]) -> str:
    newest = max((gpu.capability for gpu in gpus), default=(0, 0))
    if newest < (9, 0):
        return "none: it needs a GPU of sm_90 or newer"
    return ("" if newest >= (10, 0) else "if wanted beside fa3: ") + "pip install --pre flash-attn-4"


def _endpoint(environment: Mapping[str, str], api_key_env: str) -> Finding:
    """Whether a key is set, never what it is."""
    base_url = environment.get("OPENAI_BASE_URL", "the openai package's default")
    if environment.get(api_key_env):
        return Finding(subject="answerer openai", found=f"{api_key_env} is set; server: {base_url}")
    return Finding(
        subject="answerer openai",
        found=f"{api_key_env} is not set",
        remedy=f"none is needed for answerer=offline; else export {api_key_env} (and OPENAI_BASE_URL)",
    )
