"""Loading many facts switches the search for cycles off, and on again."""

import gc
from collections.abc import Iterator

import pytest

from holdfast.broker.groups import _no_search_for_cycles


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    if was_enabled:
        gc.enable()


def test_the_collector_runs_again_after_a_load_that_failed() -> None:
    gc.enable()

    with pytest.raises(OSError, match="disk"), _no_search_for_cycles():
        assert not gc.isenabled()
        raise OSError("disk")

    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()

    with _no_search_for_cycles():
        pass

    assert not gc.isenabled()
