"""Warns if a restart takes longer than the session timeout, so that the static member is removed meanwhile.

The end of the previous run is not recorded. The checkpoint has the time at which it planned its last batch, which gives
an upper bound of the downtime. If the driver was started since then, its age is a lower bound. In between, the group is
checked: a static member that is no longer in the group did not rejoin within its session timeout.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.coordinator_client import CoordinatorClient
from holdfast.client.errors import HoldfastError
from holdfast.wire.error_codes import ErrorCode

RESTART_S: Final = 600.0
"""After a longer downtime, the query was stopped on purpose or had nothing to read before, so it is not a restart."""
FRESH_DRIVER_S: Final = 60.0
FRESH_DRIVER_SESSIONS: Final = 3
"""A driver that is older than both has probably done other work before the query's first start, so its age does not
measure a restart. On a busy machine, restarts of up to 177 s were measured, with sessions of 60 s."""
REQUEST_TIMEOUT_S: Final = 5.0

logger = logging.getLogger("holdfast.spark")


class Downtime(NamedTuple):
    """How long a query was down, at least and at most."""

    min_s: float
    max_s: float


def downtime(planned_ms: int, now_ms: int, driver_age_s: float | None) -> Downtime | None:
    """None if the clocks of two machines differ."""
    most_s = (now_ms - planned_ms) / 1000
    if most_s < 0:
        return None
    # A driver that is older than the last batch has run the query before, too.
    return Downtime(driver_age_s if driver_age_s is not None and driver_age_s <= most_s else 0.0, most_s)


def warn_after_restart(was: Downtime, session_s: float, is_expelled: Callable[[], bool]) -> None:
    known_s = was.max_s if was.max_s <= RESTART_S else was.min_s
    if known_s > RESTART_S:
        return
    if session_s < known_s and is_expelled():
        logger.warning(
            "kafka.session.timeout.ms is %.0f s, but this query was down for about %.0f s: the session of its static "
            "member expired, so the group rebalanced then and rebalances again now; raise it well above the time that "
            "a restart takes",
            session_s,
            known_s,
        )
    elif session_s / 2 < was.min_s <= session_s:
        logger.warning(
            "kafka.session.timeout.ms is %.0f s, and this restart took at least %.0f s, more than half of it: if a "
            "restart takes longer than the session, the group rebalances twice; raise it well above the time that a "
            "restart takes",
            session_s,
            was.min_s,
        )


def warn_before_first_start(session_s: float, driver_age_s: float | None) -> None:
    if driver_age_s is None:
        return
    if session_s < driver_age_s <= max(FRESH_DRIVER_S, FRESH_DRIVER_SESSIONS * session_s):
        logger.warning(
            "kafka.session.timeout.ms is %.0f s, but this query joins %.0f s after the start of its driver: if a "
            "restart takes that long, the session of the static member expires and the group rebalances twice; raise "
            "it well above that",
            session_s,
            driver_age_s,
        )


def any_expired(network: ClusterClient, group_id: str, instance_ids: Collection[str]) -> bool:
    """Whether one of these static members is no longer in the group. False also if that cannot be determined."""
    try:
        with CoordinatorClient(network, group_id) as coordinator:
            described = coordinator.describe(time.monotonic() + REQUEST_TIMEOUT_S)
    except HoldfastError as error:
        return error.code is ErrorCode.GROUP_ID_NOT_FOUND
    return not {member.group_instance_id for member in described.members}.issuperset(instance_ids)
