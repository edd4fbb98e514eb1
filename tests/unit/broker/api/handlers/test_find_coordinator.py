"""FindCoordinator: groups find this broker; transactions are refused, and the log says to whom."""

from __future__ import annotations

import logging

import pytest

from holdfast.broker.structured_log import TextFormatter
from holdfast.wire.apis.find_coordinator import FindCoordinatorRequest
from holdfast.wire.error_codes import ErrorCode
from tests.support.handler_broker import HandlerBroker

GROUP, TRANSACTION = 0, 1
REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def asked(*keys: str, key_type: int) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))


def test_a_refused_transactional_id_is_logged_once(broker: HandlerBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            found = broker.ask(asked("payments", key_type=TRANSACTION), 6).coordinators
            assert [one.error_code for one in found] == [REFUSED]
        assert broker.ask(FindCoordinatorRequest("payments", TRANSACTION), 3).error_code == REFUSED

    (line,) = (TextFormatter().format(record) for record in caplog.records)
    assert line.endswith(
        "WARNING holdfast.broker.api.rejected_transactions: "
        "transactions refused: Holdfast has none, unset transactional.id "
        "client_id=test host=192.0.2.7 transactional_id=payments"
    )


def test_control_the_coordinator_of_a_group_is_nothing_to_log(
    broker: HandlerBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        (found,) = broker.ask(asked("g", key_type=GROUP), 6).coordinators

    assert (found.error_code, found.host, found.port) == (ErrorCode.NONE, "broker.test", 9092)
    assert not caplog.records
