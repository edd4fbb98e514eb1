"""Replies that are made and encoded in a worker thread, because they ask the disk for each of their elements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.broker.dispatch import Encoded
from holdfast.wire.message import encode


async def in_worker(make: Callable[[], Any], version: int) -> Encoded:
    return Encoded(await asyncio.to_thread(lambda: encode(make(), version)))
