"""Lets the tests import the benchmarks, which are no installed package."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

for path in (ROOT, ROOT / "tests" / "evo", ROOT / "tests" / "fitness"):
    sys.path.insert(0, str(path))
