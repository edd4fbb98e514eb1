from __future__ import annotations

import gc

import pytest

from pyspark_holdfast import DefaultSource

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was_after_the_source_was_used(enabled: bool) -> None:
    was_enabled = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()

        assert DefaultSource(options=OPTIONS).schema().startswith("key BINARY")

        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()
