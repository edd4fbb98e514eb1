"""What the tests of connections have in common."""

import time

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.connection import Connection
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.error_codes import ErrorCode
from tests.support.eventually import eventually

PATIENCE_S = 60.0


def patiently() -> float:
    return time.monotonic() + PATIENCE_S


def coordinator(client: ClusterClient, group: str) -> Connection:
    """A connection to the group's coordinator once it answers for the group.

    For a moment Kafka names a coordinator that has not taken up its work, and 0 is its answer while it loads.
    """
    connection = client.coordinator(group, patiently())
    unknown_member = HeartbeatRequest(group, 1, "nobody")
    eventually(
        lambda: connection.ask(unknown_member, patiently()).error_code == ErrorCode.UNKNOWN_MEMBER_ID,
        "the coordinator answers for the group",
    )
    return connection
