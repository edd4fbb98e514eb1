"""InitProducerId; the expected answers are those of Apache Kafka 4.3, but for transactions, which are refused."""

import logging

import pytest

from holdfast.log import disk
from holdfast.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.support.handler_broker import HandlerBroker


@pytest.mark.parametrize("version", range(6))
def test_each_producer_gets_an_id_of_its_own(broker: HandlerBroker, version: int) -> None:
    answers = [broker.ask(InitProducerIdRequest(None, 60_000), version) for _ in range(2)]

    assert answers == [InitProducerIdResponse(0, 0, 0, 0), InitProducerIdResponse(0, 0, 1, 0)]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_an_idempotent_producer_that_names_its_old_id_gets_a_new_one(broker: HandlerBroker, version: int) -> None:
    broker.ask(InitProducerIdRequest(None, 60_000), version)

    assert broker.ask(InitProducerIdRequest(None, 60_000, 0, 0), version) == InitProducerIdResponse(0, 0, 1, 0)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InitProducerIdRequest(None, 1000, 5, -1), 42),
        (InitProducerIdRequest(None, 1000, -1, 5), 42),
        (InitProducerIdRequest("", 1000), 42),
        (InitProducerIdRequest("payments", 60_000), 53),
        (InitProducerIdRequest("payments", 60_000, 5, 1), 53),
    ],
)
def test_what_is_refused(broker: HandlerBroker, request_: InitProducerIdRequest, code: int) -> None:
    assert broker.ask(request_, 5) == InitProducerIdResponse(0, code, -1, -1)


def test_a_rejected_transaction_is_logged_with_the_client(
    broker: HandlerBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        broker.ask(InitProducerIdRequest("payments", 60_000), 5)

    (line,) = caplog.records
    assert line.message == "transactions refused: Holdfast has none, unset transactional.id"
    fields = {"client_id": "test", "host": "192.0.2.7", "transactional_id": "payments"}
    assert line.__dict__["fields"] == fields


def test_no_id_is_handed_out_that_could_be_handed_out_again(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(point: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "fault", full)

    assert broker.ask(InitProducerIdRequest(None, 60_000), 5) == InitProducerIdResponse(0, 56, -1, -1)
