"""Where builds are kept, and kernels lie."""

from pathlib import Path

from evo.data import cache_folder, champion_folder, kernel_path, seed_folder, shipped_names


def test_builds_are_kept_where_the_user_keeps_caches() -> None:
    assert cache_folder(None, {"XDG_CACHE_HOME": "/caches"}) == Path("/caches/question-evo")
    assert cache_folder(None, {}) == Path.home() / ".cache/question-evo"
    assert cache_folder(None, {"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache/question-evo"
    assert cache_folder("~/builds", {"XDG_CACHE_HOME": "/caches"}) == Path.home() / "builds"


def test_the_shipped_names_are_those_that_kernels_go_by() -> None:
    names = shipped_names().split(", ")
    assert {"naive", "tiled", "mma", "hopper", "hopper_attention"} <= set(names)
    assert all(kernel_path(name).is_file() for name in names)


def test_shipped_kernels_go_by_their_names_alone(tmp_path: Path) -> None:
    assert kernel_path("mma") == seed_folder() / "mma.cu"
    assert kernel_path("hopper_attention") == champion_folder() / "hopper_attention.cu"
    for path in (str(tmp_path / "k"), "../seed/mma", "mma.cu", "m" * 5000):  # k.cu beside k is another file
        assert kernel_path(path) == Path(path)
