"""Lets the tests of this folder and those below it import what lies beside this file, and gives them a server."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from loopback_server import LoopbackServer


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    """A server that speaks OpenAI's protocols as the test scripts it."""
    loopback = LoopbackServer()
    yield loopback
    loopback.close()
