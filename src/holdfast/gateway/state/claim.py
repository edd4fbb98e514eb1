"""The claim of a gateway on a partition of the group log."""

from __future__ import annotations

from typing import Final

from holdfast.broker.clock import wall_clock_ms
from holdfast.gateway.state.producer import Producer
from holdfast.wire.group_records import ClaimKey, ClaimValue, encode_claim
from holdfast.wire.records import Record, encoded_record

LOG_FORMAT: Final = 0
"""The format of the group log. A gateway does not serve a partition that has a claim with a higher one."""


def encoded_claim(producer: Producer, gateway_id: str) -> tuple[bytes, int]:
    """The claim as the only record of a batch, and the timestamp of both."""
    now_ms = wall_clock_ms()
    key, value = encode_claim(ClaimKey(LOG_FORMAT), ClaimValue(*producer, gateway_id))
    return encoded_record(Record(0, now_ms, key, value), 0, now_ms), now_ms
