"""Where conf/ and kernels/ lie, inside the wheel once installed, at the top of a checkout before that; and builds."""

from collections.abc import Mapping
from pathlib import Path

_PACKAGED = Path(__file__).parent / "_data"
_CHECKOUT = Path(__file__).parent.parent


def data_folder() -> Path:
    """The folder that holds conf/ and kernels/."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


def conf_folder() -> Path:
    """The Hydra configuration, as an absolute path (a relative one breaks console scripts)."""
    return data_folder() / "conf"


def include_folder() -> Path:
    """The folder of the contract's header, attention.cuh."""
    return data_folder() / "kernels" / "include"


def seed_folder() -> Path:
    """The shipped seed kernels."""
    return data_folder() / "kernels" / "seed"


def champion_folder() -> Path:
    """The shipped kernels that were bred."""
    return data_folder() / "kernels" / "champion"


def kernel_path(name: str) -> Path:
    """Where a kernel lies that is named by the name of a shipped one, or by its path."""
    return next((path for path in shipped_kernels() if path.stem == name), Path(name))


def shipped_kernels() -> list[Path]:
    """The files of the shipped kernels: the seeds by their names, then what was bred from them."""
    return [path for folder in (seed_folder(), champion_folder()) for path in sorted(folder.glob("*.cu"))]


def shipped_names() -> str:
    """What shipped kernels go by, for a message: all of them in one line."""
    return ", ".join(path.stem for path in shipped_kernels())


def cache_folder(configured: str | None, environment: Mapping[str, str]) -> Path:
    """Where builds are kept: as configured, else where the XDG base directory specification puts a user's caches."""
    if configured:
        return Path(configured).expanduser()
    caches = Path(environment.get("XDG_CACHE_HOME", ""))
    return (caches if caches.is_absolute() else Path.home() / ".cache") / "question-evo"
