"""`evo verify`: one kernel compiled, checked, timed and scored, by the same judge that a search uses."""

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evo.auditing import Audits
from evo.auditors import build_auditor
from evo.audits import told
from evo.choices import settle
from evo.console import evaluation_table, head_grid, open_console
from evo.data import kernel_path, shipped_names
from evo.gpu_claim import on_held_gpus
from evo.pools import on_one_device
from evo.scenario_summary import scenario_summaries
from evo.settings import ConfigError, compose_config
from evo.workbench import open_evaluator
from fitness.audit_record import Audit, AuditCheck
from fitness.evaluation import Evaluation, ScenarioCheck, Status
from fitness.fork_server import start_fork_server
from fitness.probe import probe_machine
from fitness.scenario import Suite
from fitness.worker import PRELOAD
from population.atomic_file import strict_json

VIABLE, NOT_VIABLE = 0, 1
_MAX_CHARACTERS = 16 << 20  # of a file that may be a kernel; a device or a pipe may have no end


def verify(arguments: Sequence[str], console: Console) -> int:
    """Exit code 0 for a kernel that is right on every scenario, 1 for one that is not.

    Raises ConfigError for a bad command line, EnvironmentFault where this machine cannot judge it.
    """
    as_json = "--json" in arguments
    words = [word for word in arguments if word != "--json"]
    path = kernel_path(_kernel_named(words))
    source = _read(path)
    config = compose_config(words[1:])
    start_fork_server(PRELOAD)
    machine = probe_machine()
    audit = None
    with on_held_gpus(on_one_device(config), machine, _warn) as placed:
        settled = settle(placed, machine)
        if not as_json:
            console.print(head_grid(settled.choices[:3], [("kernel", str(path))]))
        with open_evaluator(placed, settled, machine, trusted=[source]) as evaluator:
            [evaluation] = evaluator.evaluate_all([source])
            if config.audit and evaluation.geomean is not None:
                audit = _audited(build_auditor(placed, settled, evaluator), source, evaluation)
    if as_json:
        record = evaluation.to_json() | {"scenarios": scenario_summaries(evaluation)}
        record |= {"audit": audit.to_json()} if audit else {}
        console.print(Text(strict_json(record, sort_keys=False, indent=2)), soft_wrap=True)
    else:
        _show(evaluation, console)
        _show_left_out(evaluation, settled.suite, console)
        _show_audit(audit, console)
    failed = audit is not None and audit.failed
    return VIABLE if evaluation.status is Status.PASSED and not failed else NOT_VIABLE


def _warn(line: str) -> None:
    open_console(stderr=True).print(Text(line), soft_wrap=True)  # what goes to stdout may be JSON


def _audited(auditor: Audits | None, source: str, evaluation: Evaluation) -> Audit:
    """The whole audit, as a run's best gets it. Raises ConfigError where nothing here can look at a kernel again."""
    if auditor is None:
        raise ConfigError("audit=true: this backend answers from a table and runs no kernel; use backend=host or cuda")
    checks: tuple[AuditCheck, ...] = auditor.audit(source, evaluation)
    if not Audit(why=(), checks=checks).failed:
        checks = (*checks, *auditor.audit_champion(source))
    return Audit(why=("asked for",), checks=checks)


def _kernel_named(words: Sequence[str]) -> str:
    if not words or "=" in words[0] or words[0].startswith("-"):
        raise ConfigError("verify: no kernel named; expected evo verify KERNEL.cu [key=value …] [--json]")
    return words[0]


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            source = file.read(_MAX_CHARACTERS + 1)
        if len(source) > _MAX_CHARACTERS:
            raise ValueError(f"it has more than {_MAX_CHARACTERS >> 20} MiB")
        return source
    except (OSError, ValueError) as error:
        expected = f"expected the path of a .cu file, or the name of a shipped one: {shipped_names()}"
        raise ConfigError(f"verify: {path} cannot be read ({error}); {expected}") from error


def _show(evaluation: Evaluation, console: Console) -> None:
    if evaluation.checks:
        console.print(_check_table(evaluation.checks))
    if evaluation.timings:
        console.print(evaluation_table(evaluation, console.width))
    for build in evaluation.builds:
        for advisory in build.advisories:
            console.print(Text(f"{build.name}: {advisory}"), soft_wrap=True)
    console.print(Text(f"{evaluation.status}{': ' if evaluation.reason else ''}{evaluation.reason}"), soft_wrap=True)


def _show_left_out(evaluation: Evaluation, suite: Suite, console: Console) -> None:
    """Of a suite that is not timed, how many shapes the kernel does not claim to support."""
    checked = {check.scenario for check in evaluation.checks}
    left_out = [each.name for each in suite.edges if each.name not in checked]
    if evaluation.status is Status.PASSED and not suite.scenarios and left_out:
        count = f"{len(left_out)} of {len(suite.edges)} shapes"
        console.print(Text(f"{count} lie outside of the kernel's `supports`, and were left out"), soft_wrap=True)


def _show_audit(audit: Audit | None, console: Console) -> None:
    if audit is None:
        return
    table = Table(title="audit", box=box.SIMPLE)
    for column in ("check", "finding", "detail"):
        table.add_column(column, overflow="fold")
    for check in audit.checks:
        table.add_row(Text(check.name), str(check.finding), Text(check.detail))
    console.print(table)
    console.print(Text(f"audit {told(audit)}"), soft_wrap=True)


def _check_table(checks: Sequence[ScenarioCheck]) -> Table:
    """One row a scenario: its verdict, and how near the worst of its checks came to the bounds."""
    table = Table(title="errors against the fp32 reference, the worst as a share of its bound", box=box.SIMPLE)
    table.add_column("scenario", no_wrap=True)
    for column in ("checks", "verdict", "largest", "RMS", "lse"):
        table.add_column(column, justify="right", no_wrap=True)
    for name in dict.fromkeys(check.scenario for check in checks):
        of_scenario = [check for check in checks if check.scenario == name]
        passed = all(check.passed for check in of_scenario)
        table.add_row(
            name,
            str(len(of_scenario)),
            "right" if passed else "WRONG",
            _nearest([(check.max_error, check.max_error_bound) for check in of_scenario]),
            _nearest([(check.relative_rms_error, check.relative_rms_bound) for check in of_scenario]),
            _nearest([(check.lse_max_error, check.lse_max_bound) for check in of_scenario]),
        )
    return table


def _nearest(pairs: Sequence[tuple[float | None, float]]) -> str:
    """The greatest error as a share of its bound; one that is not finite outweighs all."""
    if any(error is None for error, _ in pairs):
        return "not finite"
    return f"{max(error / bound if bound else float(error > 0) for error, bound in pairs if error is not None):.2f}"
