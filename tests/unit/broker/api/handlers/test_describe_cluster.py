"""DescribeCluster; the expected answers are those of Apache Kafka 4.3."""

import pytest

from holdfast.wire.apis.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from holdfast.wire.fields import OPERATIONS_NOT_REQUESTED
from tests.support.handler_broker import HandlerBroker


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(("asked", "operations"), [(False, OPERATIONS_NOT_REQUESTED), (True, 8096)])
def test_one_broker_is_the_cluster(broker: HandlerBroker, version: int, asked: bool, operations: int) -> None:
    broker.rack = "cellar"

    response = broker.ask(DescribeClusterRequest(asked), version)

    this = DescribeClusterBroker(1, "broker.test", 9092, "cellar", is_fenced=False)
    assert response == DescribeClusterResponse(0, 0, None, 1, broker.cluster_id, 1, [this], operations)


@pytest.mark.parametrize(
    ("endpoint_type", "code", "message"),
    [
        (2, 114, "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"),
        (9, 115, "Unsupported endpoint type 9"),
        (0, 115, "Unsupported endpoint type 0"),
    ],
)
def test_other_endpoints_are_elsewhere(broker: HandlerBroker, endpoint_type: int, code: int, message: str) -> None:
    response = broker.ask(DescribeClusterRequest(True, endpoint_type), 1)

    assert response == DescribeClusterResponse(0, code, message, 1, "", -1, [], OPERATIONS_NOT_REQUESTED)
