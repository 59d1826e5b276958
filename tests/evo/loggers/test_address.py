"""An address is told without its login, and otherwise as it was given."""

import pytest

from evo.loggers.address import without_userinfo


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("https://me:s3cret@ml.example", "https://ml.example"),
        ("https://token@ml.example:5000/a@b?c=d@e", "https://ml.example:5000/a@b?c=d@e"),
        ("postgresql+psycopg2://me:s3@cret@[::1]:5432/runs", "postgresql+psycopg2://[::1]:5432/runs"),
        ("https://ml.example/a@b", "https://ml.example/a@b"),
        ("file:./mlruns", "file:./mlruns"),
        ("file:///home/me@work/mlruns", "file:///home/me@work/mlruns"),
        ("/home//me@work/mlruns", "/home//me@work/mlruns"),
        ("me@work", "me@work"),
        ("", ""),
    ],
)
def test_only_the_login_is_left_out(address: str, told: str) -> None:
    assert without_userinfo(address) == told
