"""A pytest plugin for the hunt: the same random examples in every run, no time spent on shrinking, the copy tested."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import Phase, settings

import holdfast
from tests.seeded_bugs.hunt import SOURCE_VARIABLE


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    source = Path(os.environ[SOURCE_VARIABLE])
    assert holdfast.__file__ is not None
    assert source in Path(holdfast.__file__).parents, f"{holdfast.__file__} is tested instead of the copy"
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("same lives", deadline=None, derandomize=True, database=None, phases=phases)
    settings.load_profile("same lives")
