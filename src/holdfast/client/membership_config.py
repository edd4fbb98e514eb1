"""The settings of membership, common to consumers and members of other types."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, Final

from holdfast.client.config import one_of, whole_number
from holdfast.client.errors import ConfigError
from holdfast.membership.settings import MembershipSettings

NAMES: Final = frozenset(
    {
        "group.id",
        "group.instance.id",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "request.timeout.ms",
        "static.membership.fallback",
    }
)

_LEGAL_INSTANCE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def membership_settings(settings: Mapping[str, Any], protocol_type: str) -> MembershipSettings:
    group_id = settings.get("group.id")
    if group_id is None or group_id == "":
        raise ConfigError("group.id is missing: give the name of the group")
    if not isinstance(group_id, str):
        raise ConfigError(f"group.id is {group_id!r}; it must be text")
    session_ms = whole_number(settings, "session.timeout.ms", 45_000, 1)
    heartbeat_ms = whole_number(settings, "heartbeat.interval.ms", min(3_000, max(1, session_ms // 3)), 1)
    if heartbeat_ms >= session_ms:
        raise ConfigError(
            f"heartbeat.interval.ms is {heartbeat_ms}, which is not below session.timeout.ms ({session_ms}): the "
            "session would end between two heartbeats; a third of it is usual"
        )
    return MembershipSettings(
        group_id=group_id,
        protocol_type=protocol_type,
        group_instance_id=instance_id(settings),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        max_poll_interval_ms=whole_number(settings, "max.poll.interval.ms", 300_000, 1),
        request_timeout_ms=whole_number(settings, "request.timeout.ms", 30_000, 1),
        retry_backoff_ms=whole_number(settings, "retry.backoff.ms", 100, 1),
        retry_backoff_max_ms=whole_number(settings, "retry.backoff.max.ms", 1_000, 1),
        fall_back_to_dynamic=one_of(settings, "static.membership.fallback", "refuse", ("refuse", "dynamic"))
        == "dynamic",
        jitter=lambda: random.uniform(-1, 1),
    )


def instance_id(settings: Mapping[str, Any]) -> str | None:
    """Kafka's clients apply the rules for topic names; the broker does not validate it."""
    value = settings.get("group.instance.id")
    if value is None or value == "":
        return None
    if not isinstance(value, str) or value in (".", "..") or not _LEGAL_INSTANCE_ID.fullmatch(value):
        raise ConfigError(
            f"group.instance.id is {value!r}; it may have up to 249 letters, digits, dots, underscores and dashes, and "
            "not be '.' or '..'"
        )
    return value


def instance_ids(instance_id: str, members: int) -> list[str]:
    """The instance ids of the members of one application, derived from its own."""
    return [f"{instance_id}-thread-{number}" for number in range(1, members + 1)]
