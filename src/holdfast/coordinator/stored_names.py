"""Names in requests that a record cannot hold."""

from __future__ import annotations

from holdfast.coordinator.classic.join_group import MAX_BYTES_PER_CHAR, MAX_STRING_BYTES
from holdfast.coordinator.classic.member import Client
from holdfast.wire.apis.join_group import JoinGroupRequest


def has_unstorable_name(request: JoinGroupRequest, client: Client) -> bool:
    names = [request.group_id, request.group_instance_id or "", request.protocol_type, client.client_id]
    names += [protocol.name for protocol in request.protocols]
    # Nearly always even all of them together are short enough for one.
    return not is_storable("".join(names)) and not all(map(is_storable, names))


def is_storable(name: str) -> bool:
    """Whether a string of a record can hold it."""
    return len(name) * MAX_BYTES_PER_CHAR <= MAX_STRING_BYTES or len(name.encode()) <= MAX_STRING_BYTES
