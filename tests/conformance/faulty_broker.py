"""A Holdfast in this process, where a test can put a bug into it; beside it stands a sound one, in its own process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.server import Broker

PATIENCE_S = 30


@contextmanager
def broker_in_this_process(settings: Mapping[str, str], directory: Path) -> Iterator[tuple[str, int]]:
    """Its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    config = BrokerConfig.of({"listeners": "PLAINTEXT://127.0.0.1:0", **settings})
    broker = Broker(config, directory)
    asyncio.run_coroutine_threadsafe(broker.start(), loop).result(PATIENCE_S)
    try:
        yield broker.address
    finally:
        asyncio.run_coroutine_threadsafe(broker.stop(), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()
