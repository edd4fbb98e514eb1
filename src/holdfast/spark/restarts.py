"""How long a query was away when it is started again, and whether its seat waits for so long.

Nobody tells when the last life of a query ended. But its checkpoint says when that planned its last batch: the query
was not away for longer. And if its driver was started since then, it was not away for less than the driver is old.
Between the two, the group knows: a seat that it has given away was not taken again within its session.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from holdfast.client.coordinator import GroupCoordinator
from holdfast.client.errors import HoldfastError
from holdfast.client.network import Network
from holdfast.wire.error_codes import ErrorCode

RESTART_S: Final = 600.0
"""A query that was away for longer was stopped on purpose, or had nothing to read before: that is no restart."""
FRESH_DRIVER_S: Final = 60.0
"""Before a first start, a driver that is older has likely done other things: its age says nothing of a restart."""
ASK_S: Final = 5.0

logger = logging.getLogger("holdfast.spark")


class Away(NamedTuple):
    """For how long a query was, at least and at most."""

    least_s: float
    most_s: float


def away(planned_ms: int, now_ms: int, driver_age_s: float | None) -> Away | None:
    """None if the clocks of two machines do not agree."""
    most_s = (now_ms - planned_ms) / 1000
    if most_s < 0:
        return None
    # A driver that is older than the last batch has had both lives of the query.
    return Away(driver_age_s if driver_age_s is not None and driver_age_s <= most_s else 0.0, most_s)


def warn_after_restart(was: Away, session_s: float, is_seat_gone: Callable[[], bool]) -> None:
    known_s = was.most_s if was.most_s <= RESTART_S else was.least_s
    if known_s > RESTART_S:
        return
    if session_s < known_s and is_seat_gone():
        logger.warning(
            "kafka.session.timeout.ms is %.0f s, but this query was away for about %.0f s: its seat was given away "
            "meanwhile, for which the group rebalanced, as it does now again; raise it well above what restarts take",
            session_s,
            known_s,
        )
    elif session_s / 2 < was.least_s <= session_s:
        logger.warning(
            "kafka.session.timeout.ms is %.0f s, and this restart took at least %.0f s, more than half of it: one that "
            "is slower loses the seat, and the group rebalances twice; raise it well above what restarts take",
            session_s,
            was.least_s,
        )


def warn_before_first_start(session_s: float, driver_age_s: float | None) -> None:
    if driver_age_s is not None and session_s < driver_age_s <= FRESH_DRIVER_S:
        logger.warning(
            "kafka.session.timeout.ms is %.0f s, but this query joins %.0f s after the start of its driver: if a "
            "restart takes that long, the seat is given away meanwhile and the group rebalances twice; raise it "
            "well above that",
            session_s,
            driver_age_s,
        )


def is_any_gone(network: Network, group_id: str, instance_ids: Collection[str]) -> bool:
    """Whether the group has given one of these seats away. False also where that cannot be found out."""
    try:
        with GroupCoordinator(network, group_id) as coordinator:
            described = coordinator.describe(time.monotonic() + ASK_S)
    except HoldfastError as error:
        return error.code is ErrorCode.GROUP_ID_NOT_FOUND
    return not {member.group_instance_id for member in described.members}.issuperset(instance_ids)
