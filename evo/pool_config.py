"""The schema of conf/pool; the rest of the configuration is in evo/config.py."""

from dataclasses import dataclass
from enum import Enum


class PoolKind(Enum):
    """Whose GPUs measure."""

    local = "local"
    ray = "ray"


@dataclass
class PoolConfig:
    """conf/pool"""

    kind: PoolKind = PoolKind.local
    devices: list[int] | None = None
    address: str | None = None
    workers: int | None = None
    start_s: float = 120.0
