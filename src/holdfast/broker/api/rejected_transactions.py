"""Logs clients that request transactions.

Java's producer drops the error message of FindCoordinator and reports a missing permission to its user. The broker
therefore logs the client, and that Holdfast has no transactions. Clients repeat such requests, so each client is logged
once an hour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from holdfast.broker.structured_log import log_event

logger = logging.getLogger(__name__)

PERIOD_S: Final = 3_600.0
MAX_LINES: Final = 100
"""Lines in one period; further ones are counted. One request may name thousands of transactional ids."""
MAX_NAME_LENGTH: Final = 200
"""Characters. Ids come from clients and may have thousands."""


NO_TRANSACTIONS: Final = "transactions refused: Holdfast has none, unset transactional.id"


class RejectedTransactionsLog:
    def __init__(self, text: str = NO_TRANSACTIONS, *, now_s: Callable[[], float] = monotonic) -> None:
        self._text = text
        self._now_s = now_s
        self._began_s = now_s()
        self._logged: set[tuple[str | None, str, str]] = set()
        self._suppressed = 0

    def log(self, client_id: str | None, host: str, transactional_id: str) -> None:
        if self._now_s() - self._began_s >= PERIOD_S:
            self._start_period()
        who = client_id and client_id[:MAX_NAME_LENGTH], host, transactional_id[:MAX_NAME_LENGTH]
        if who in self._logged:
            return
        if len(self._logged) >= MAX_LINES:
            self._suppressed += 1
            return
        self._logged.add(who)
        log_event(
            logger,
            self._text,
            logging.WARNING,
            client_id=who[0],
            host=host,
            transactional_id=who[2],
        )

    def _start_period(self) -> None:
        if self._suppressed:
            log_event(logger, "further requests for transactions refused", logging.WARNING, count=self._suppressed)
        self._began_s, self._suppressed = self._now_s(), 0
        self._logged.clear()
