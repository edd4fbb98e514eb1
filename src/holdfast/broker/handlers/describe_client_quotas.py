"""DescribeClientQuotas: there are no quotas. Kafka's tool for users asks for them beside the SCRAM credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.wire.apis.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(DESCRIBE_CLIENT_QUOTAS)
def describe_client_quotas(
    broker: Broker,  # noqa: ARG001
    request: DescribeClientQuotasRequest,  # noqa: ARG001
    context: RequestContext,  # noqa: ARG001
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_message=None)
