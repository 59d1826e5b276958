"""MLflow: a run there for each run here, which a resumed one goes on with."""

import os
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

_LONGEST_VALUE = 500  # characters of a parameter: what servers of all versions take
_AT_ONCE = 100  # parameters in one request
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}  # a search waits meanwhile


class Mlflow:
    """One run at a server or in a folder. `known` is its id where an earlier part began it; `remember` keeps a new one.

    What the user set in the environment for MLflow counts before what is set here.
    """

    def __init__(
        self, *, tracking_uri: str, experiment: str, name: str, settings: Mapping[str, str], known: str | None,
        remember: Callable[[str], None],
    ) -> None:  # fmt: skip
        wishes = _PATIENCE | ({"MLFLOW_ALLOW_FILE_STORE": "true"} if _is_folder(tracking_uri) else {})
        for key, value in wishes.items():
            os.environ.setdefault(key, value)
        self._client = MlflowClient(tracking_uri=tracking_uri)
        if known is None:
            self._run = self._begin(experiment, name, settings)
            remember(self._run)
        else:
            self._run = known
            self._client.update_run(known, status="RUNNING")

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """A metric each, in one request."""
        now = int(1000 * time.time())
        metrics = [Metric(name, figure, now, step) for name, figure in figures.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self) -> None:
        """Mark the run as finished; a resumed one runs again."""
        self._client.set_terminated(self._run)

    def _begin(self, experiment: str, name: str, settings: Mapping[str, str]) -> str:
        found = self._client.get_experiment_by_name(experiment)
        where = found.experiment_id if found else self._client.create_experiment(experiment)
        run: str = self._client.create_run(where, run_name=name).info.run_id
        params = [Param(key, value[:_LONGEST_VALUE]) for key, value in settings.items()]
        for start in range(0, len(params), _AT_ONCE):
            self._client.log_batch(run, params=params[start : start + _AT_ONCE])
        return run


def _is_folder(tracking_uri: str) -> bool:
    return urlsplit(tracking_uri).scheme in ("", "file")
