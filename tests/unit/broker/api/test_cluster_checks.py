"""Which right to the cluster each API asks for: Kafka's."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, cast

import pytest

from holdfast.broker.api.checks import CHECKS
from holdfast.broker.api.checks.base import AuthorizedRequest
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.authorization.acls import Operation
from holdfast.broker.authorization.authorizer import ClientPermissions
from holdfast.log.inspection import run_to_completion
from holdfast.wire.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from holdfast.wire.apis.describe_log_dirs import DescribeLogDirsRequest
from holdfast.wire.apis.describe_quorum import DescribeQuorumRequest
from holdfast.wire.apis.elect_leaders import ElectLeadersRequest
from holdfast.wire.apis.list_config_resources import ListConfigResourcesRequest
from holdfast.wire.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from holdfast.wire.apis.update_features import UpdateFeaturesRequest

CLUSTER_REFUSED = 31
HANDLED = "the handler's answer"


@dataclass
class OneRight:
    right: Operation

    def cluster(self, operation: Operation) -> bool:
        return operation is self.right


@dataclass
class Version:
    api_version: int


@pytest.mark.parametrize(
    ("request_", "needed"),
    [
        (DescribeLogDirsRequest(), Operation.DESCRIBE),
        (DescribeQuorumRequest(), Operation.DESCRIBE),
        (ListPartitionReassignmentsRequest(), Operation.DESCRIBE),
        (ListConfigResourcesRequest(), Operation.DESCRIBE_CONFIGS),
        (AlterPartitionReassignmentsRequest(), Operation.ALTER),
        (ElectLeadersRequest(), Operation.ALTER),
        (UpdateFeaturesRequest(), Operation.ALTER),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, Operation) else value.name,
)
def test_each_api_asks_for_one_right_and_no_other(request_: Any, needed: Operation) -> None:
    def answer(right: Operation) -> Any:
        context = cast("RequestContext", Version(request_.API.versions[1]))
        access = cast("ClientPermissions", OneRight(right))
        found = CHECKS[request_.API.key](
            AuthorizedRequest(cast("Services", None), request_, context, access, lambda *_: HANDLED)
        )
        return run_to_completion(found) if isinstance(found, Generator) else found

    assert answer(needed) == HANDLED
    others = [answer(right) for right in Operation if right is not needed]
    assert {refusal.error_code for refusal in others} == {CLUSTER_REFUSED}
