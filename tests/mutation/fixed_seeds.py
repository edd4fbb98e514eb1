"""A pytest plugin for seeded bugs: the same random examples in every run, no shrinking, and the copy is tested."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import Phase, settings

import holdfast
from tests.mutation.run import SOURCE_VARIABLE


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    source = Path(os.environ[SOURCE_VARIABLE])
    assert holdfast.__file__ is not None
    assert source in Path(holdfast.__file__).parents, f"{holdfast.__file__} is tested instead of the copy"
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("fixed seeds", deadline=None, derandomize=True, database=None, phases=phases)
    settings.load_profile("fixed seeds")
