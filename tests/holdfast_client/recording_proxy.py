"""A wire that remembers what members and leaders say on it, so that a test can ask what was sent and what was not."""

from __future__ import annotations

import time
from typing import Any

from holdfast.wire.apis.describe_groups import DESCRIBE_GROUPS
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.join_groups import JOIN_GROUPS
from holdfast.wire.apis.sync_group import SYNC_GROUP
from holdfast.wire.headers import decode_request_header
from holdfast.wire.message import APIS, Api, decode
from tests.support.tcp_proxy import TcpProxy, _Link, _read_frame

FIRST_OF_OUR_OWN = 10_000
_REMEMBERED = {api.key for api in (JOIN_GROUP, JOIN_GROUPS, SYNC_GROUP, DESCRIBE_GROUPS)}


class RecordingProxy(TcpProxy):
    def __init__(self) -> None:
        super().__init__()
        self._keys: set[int] = set()
        self._requests: list[Any] = []

    def requests(self, api: Api, group: str) -> list[Any]:
        """The messages of this API that were about the group, in the order in which they were sent."""
        with self._lock:
            asked = [message for message in self._requests if message.API is api]
        if api is DESCRIBE_GROUPS:
            return [message for message in asked if group in message.groups]
        return [message for message in asked if message.group_id == group]

    @property
    def keys_of_our_own(self) -> list[int]:
        """The API keys that were asked, of those that only Holdfast has."""
        with self._lock:
            return sorted(key for key in self._keys if key >= FIRST_OF_OUR_OWN)

    def _forward_requests(self, link: _Link) -> None:
        while frame := _read_frame(link.client):
            api_key, version, correlation_id, _, position = decode_request_header(frame[4:])
            message = None
            if api_key in _REMEMBERED:
                message = decode(APIS[api_key].request, version, frame[4:], position)
            with self._lock:
                self._keys.add(api_key)
                link.unanswered[correlation_id] = (api_key, time.monotonic())
                if message is not None:
                    self._requests.append(message)
            link.broker.sendall(frame)
