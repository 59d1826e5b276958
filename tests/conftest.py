"""Leaves out the tests that need a GPU, unless they are asked for; then a machine without one is an error."""

import pytest

GPU = "gpu"


@pytest.hookimpl(trylast=True)  # after -m has deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]):
    on_gpu = [item for item in items if item.get_closest_marker(GPU)]
    if GPU in config.option.markexpr:
        if on_gpu:
            require_gpu()
        return
    for item in on_gpu:
        item.add_marker(pytest.mark.skip(reason=f"needs an NVIDIA GPU; ask for it with -m {GPU}"))


def require_gpu():
    import torch  # seconds, which only a run on a GPU spends

    if not torch.cuda.is_available():
        raise pytest.UsageError(f"-m {GPU}: torch {torch.__version__} finds no NVIDIA GPU, which these tests need")
