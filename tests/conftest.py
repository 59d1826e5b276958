"""Leaves out the tests that need a GPU, or minutes, unless they are asked for, or a browser where there is none.

Where GPU or browser are asked for by their marker, a machine without one is an error.
"""

import importlib.util
import shutil

import pytest

GPU, BROWSER, SOAK = "gpu", "browser", "soak"
BROWSER_PROGRAMS = ("chromium", "chromedriver")


@pytest.hookimpl(trylast=True)  # after -m has deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]):
    asked_for = config.option.markexpr
    on_gpu = [item for item in items if item.get_closest_marker(GPU)]
    if GPU not in asked_for:
        leave_out(on_gpu, f"needs an NVIDIA GPU; ask for it with -m {GPU}")
    elif on_gpu:
        require_gpu()
    if SOAK not in asked_for:
        leave_out([item for item in items if item.get_closest_marker(SOAK)], f"minutes; ask for it with -m {SOAK}")
    in_browser = [item for item in items if item.get_closest_marker(BROWSER)]
    if in_browser and (lacking := what_browsing_lacks()):
        if BROWSER in asked_for:
            raise pytest.UsageError(f"-m {BROWSER}: {lacking}")
        leave_out(in_browser, lacking)


def leave_out(items: list[pytest.Item], reason: str):
    for item in items:
        item.add_marker(pytest.mark.skip(reason=reason))


def require_gpu():
    import torch  # seconds, which only a run on a GPU spends

    if not torch.cuda.is_available():
        raise pytest.UsageError(f"-m {GPU}: torch {torch.__version__} finds no NVIDIA GPU, which these tests need")


def what_browsing_lacks() -> str:
    """What is missing, and how to get it; "" where nothing is."""
    missing = [program for program in BROWSER_PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"needs {' and '.join(missing)}: apt-get install chromium chromium-driver"
    return "" if importlib.util.find_spec("selenium") else "needs selenium: pip install -e '.[dev]'"
