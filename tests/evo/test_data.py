"""Where builds are kept."""

from pathlib import Path

from evo.data import cache_folder


def test_builds_are_kept_where_the_user_keeps_caches() -> None:
    assert cache_folder(None, {"XDG_CACHE_HOME": "/caches"}) == Path("/caches/question-evo")
    assert cache_folder(None, {}) == Path.home() / ".cache/question-evo"
    assert cache_folder(None, {"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache/question-evo"
    assert cache_folder("~/builds", {"XDG_CACHE_HOME": "/caches"}) == Path.home() / "builds"
