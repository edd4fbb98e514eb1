"""A broker that coordinates one group by what a test wrote down for each API: a Holdfast, or one that has none of its
own APIs, as Apache Kafka."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.client.settings import NetworkSettings
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorResponse, FoundCoordinator
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatResponse
from holdfast.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupResponse
from holdfast.wire.apis.metadata import (
    METADATA,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.message import APIS, Api
from tests.support.eventually import eventually
from tests.unit.client.scripted import Peer, Request, ScriptedServer

FIRST_PRIVATE_KEY = 10_000
Answer = Callable[[Any], Any]
"""Gets the message and returns the response; None hangs up."""


class Group:
    """The script of a `ScriptedServer`. What is not written down for it, it answers as a healthy broker would."""

    def __init__(
        self, *answers: tuple[Api, Answer], holdfast: bool = True, highest: Mapping[int, int] | None = None
    ) -> None:
        """`highest`: the highest versions that it has of some APIs, by their keys, as an older broker."""
        self._answers: dict[int, Answer] = {
            HEARTBEAT.key: lambda _message: HeartbeatResponse(),
            LEAVE_GROUP.key: lambda _message: LeaveGroupResponse(),
            **{api.key: answer for api, answer in answers},
        }
        self.partitions: dict[str, int] = {}
        """The topics that exist."""
        self.metadata_requests = 0
        """How often somebody looked at them."""
        self.requests: list[tuple[Request, Any]] = []
        """Every request with the connection that it came on, but those that only ask the way."""
        self._holdfast = holdfast
        self._highest = highest or {}
        self._lock = threading.Lock()

    def __call__(self, peer: Peer) -> None:
        try:
            while self._serve(peer, peer.request()):
                pass
        except ConnectionError:
            pass

    def _serve(self, peer: Peer, request: Request) -> bool:
        host, port = peer.socket.getsockname()[:2]
        if request.api is API_VERSIONS:
            keys = [key for key in APIS if self._holdfast or key < FIRST_PRIVATE_KEY]
            response: Any = ApiVersionsResponse(api_keys=[self._versions(key) for key in keys])
        elif request.api is FIND_COORDINATOR:
            (group,) = request.message.coordinator_keys
            response = FindCoordinatorResponse(coordinators=[FoundCoordinator(group, 1, host, port, 0, None)])
        elif request.api is METADATA:
            response = self._metadata(host, port, request.message.topics)
            self.metadata_requests += 1
        else:
            with self._lock:
                self.requests.append((request, peer))
            response = self._answers[request.api.key](request.message)
        if response is None:
            peer.socket.close()
            return False
        peer.answer(request, response)
        return True

    def _versions(self, key: int) -> ApiVersion:
        lowest, highest = APIS[key].versions
        return ApiVersion(key, lowest, self._highest.get(key, highest))

    def _metadata(self, host: str, port: int, asked: list[Any] | None) -> MetadataResponse:
        names = self.partitions.keys() if asked is None else {topic.name for topic in asked}
        topics = [
            MetadataResponseTopic(
                name=name,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=number, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
                    )
                    for number in range(count)
                ],
            )
            for name, count in self.partitions.items()
            if name in names
        ]
        return MetadataResponse(brokers=[MetadataResponseBroker(1, host, port)], controller_id=1, topics=topics)

    def messages(self, api: Api) -> list[Any]:
        with self._lock:
            return [request.message for request, _ in self.requests if request.api is api]

    def connections(self, api: Api) -> list[Any]:
        """The connections on which this was asked, one for each request."""
        with self._lock:
            return [peer for request, peer in self.requests if request.api is api]

    def wait_for(self, api: Api, times: int = 1) -> list[Any]:
        eventually(lambda: len(self.messages(api)) >= times, f"{times} {api.name}")
        return self.messages(api)


def network_of(server: ScriptedServer) -> NetworkSettings:
    return NetworkSettings.from_config({"bootstrap.servers": f"{server.address.host}:{server.address.port}"})
