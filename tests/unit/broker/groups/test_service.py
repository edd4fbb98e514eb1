"""Loading many facts switches the search for cycles off, and on again."""

import gc
from collections.abc import Iterator

import pytest

from holdfast.broker.groups.service import _gc_paused


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    if was_enabled:
        gc.enable()


def test_the_collector_runs_again_after_a_load_that_failed() -> None:
    gc.enable()

    with pytest.raises(OSError, match="disk"), _gc_paused():
        assert not gc.isenabled()
        raise OSError("disk")

    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()

    with _gc_paused():
        pass

    assert not gc.isenabled()
