"""Clients that ask for transactions, in the log.

Java's producer drops the message of FindCoordinator's refusal, and its user reads of a missing right. So the broker
logs the client, and that there are no transactions. Clients repeat what was refused: each is one line an hour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from holdfast.broker.log_lines import say

logger = logging.getLogger(__name__)

PERIOD_S: Final = 3_600.0
MOST_LINES: Final = 100
"""In one period; the others are counted. One request may name thousands of transactional ids."""
LONGEST_NAME: Final = 200
"""Characters. Ids come from clients and may have thousands."""


class TransactionRefusals:
    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        self._began_s = now_s()
        self._logged: set[tuple[str | None, str, str]] = set()
        self._not_logged = 0

    def log(self, client_id: str | None, host: str, transactional_id: str) -> None:
        if self._now_s() - self._began_s >= PERIOD_S:
            self._begin_again()
        who = client_id and client_id[:LONGEST_NAME], host, transactional_id[:LONGEST_NAME]
        if who in self._logged:
            return
        if len(self._logged) >= MOST_LINES:
            self._not_logged += 1
            return
        self._logged.add(who)
        say(
            logger,
            "transactions refused: Holdfast has none, unset transactional.id",
            logging.WARNING,
            client_id=who[0],
            host=host,
            transactional_id=who[2],
        )

    def _begin_again(self) -> None:
        if self._not_logged:
            say(logger, "further requests for transactions refused", logging.WARNING, count=self._not_logged)
        self._began_s, self._not_logged = self._now_s(), 0
        self._logged.clear()
