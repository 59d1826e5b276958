"""The key of an evaluation: equal where the same source was measured in the same way on the same kind of device."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict

from fitness.evaluation import Environment
from fitness.judge_settings import JudgeSettings
from fitness.scenario import Suite


def source_sha256(source: str) -> str:
    """The hex digest of a candidate's text, half characters of a broken reply included."""
    return hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()


def evaluation_key(
    *, source: str, contract: int, compiler: str, flags: Sequence[str], suite: Suite, environment: Environment,
    settings: JudgeSettings, bar: float | None = None,
) -> str:  # fmt: skip
    """The hex digest of everything that a measurement depends on.

    `compiler` is its exact version. The driver is left out of the environment: a record notes it, but an update does
    not make all records stale. `bar` is given for a candidate that stopped early, and only then: it fell short of that
    very bar, and may clear a lower one; a complete measurement depends on no bar.
    """
    depends_on = {
        "source": source_sha256(source),
        "contract": contract,
        "compiler": [compiler, *flags],
        "suite": [[scenario.to_json() for scenario in part] for part in (suite.scenarios, suite.edges)],
        "environment": {name: value for name, value in asdict(environment).items() if name != "driver"},
        "settings": asdict(settings),
    } | ({} if bar is None else {"bar": bar})
    return hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()
