"""Replies that are made and encoded in a worker thread, because each of their elements needs the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.broker.api.replies import PreEncoded
from holdfast.wire.message import encode


async def encode_in_thread(make: Callable[[], Any], version: int) -> PreEncoded:
    return PreEncoded(await asyncio.to_thread(lambda: encode(make(), version)))
