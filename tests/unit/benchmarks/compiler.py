"""Some of the benchmarks's clients are in C."""

import os
import shutil

import pytest

NEEDS_A_COMPILER = [
    pytest.mark.real,
    pytest.mark.skipif(
        shutil.which("cc") is None and "CI" not in os.environ,
        reason="needs a C compiler (cc) to build the load generator",
    ),
]
"""In CI its absence fails the tests."""
