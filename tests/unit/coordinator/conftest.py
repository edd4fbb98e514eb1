"""The group that the tests of standbys and of takeovers start with."""

from __future__ import annotations

import pytest

from tests.unit.coordinator.standby_group import StandbyGroup, world


@pytest.fixture(params=[True, False], ids=["static", "dynamic"])
def a_world(request: pytest.FixtureRequest) -> StandbyGroup:
    return world(static=request.param)
