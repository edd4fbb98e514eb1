"""A broker that coordinates every group and answers as a test wrote down: a Holdfast, or an Apache Kafka, which has
none of Holdfast's own APIs."""

from __future__ import annotations

from typing import Any

from holdfast import Admin
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorResponse, FoundCoordinator
from holdfast.wire.apis.metadata import METADATA, MetadataResponse, MetadataResponseBroker
from holdfast.wire.message import APIS
from tests.unit.client.scripted import Peer, Request, ScriptedServer

FIRST_PRIVATE_KEY = 10_000


class Coordinator:
    """Answers each request with the next answer to its API, the last one again and again; None hangs up."""

    def __init__(self, *answers: Any, holdfast: bool = True) -> None:
        self._answers: dict[int, list[Any]] = {}
        for one in answers:
            self._answers.setdefault(one.API.key, []).append(one)
        self._holdfast = holdfast
        self.requests: list[Request] = []

    def disconnect_first(self, key: int) -> Coordinator:
        self._answers[key].insert(0, None)
        return self

    def __call__(self, peer: Peer) -> None:
        host, port = peer.socket.getsockname()
        while True:
            request = peer.request()
            if request.api is API_VERSIONS:
                keys = [key for key in APIS if self._holdfast or key < FIRST_PRIVATE_KEY]
                peer.answer(
                    request, ApiVersionsResponse(api_keys=[ApiVersion(key, *APIS[key].versions) for key in keys])
                )
            elif request.api is METADATA:
                peer.answer(request, MetadataResponse(brokers=[MetadataResponseBroker(1, host, port)], controller_id=1))
            elif request.api is FIND_COORDINATOR:
                (group,) = request.message.coordinator_keys
                peer.answer(
                    request, FindCoordinatorResponse(coordinators=[FoundCoordinator(group, 1, host, port, 0, None)])
                )
            else:
                self.requests.append(request)
                answers = self._answers[request.api.key]
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                if answer is None:
                    return
                peer.answer(request, answer)

    def messages(self) -> list[Any]:
        """What was asked, in the order in which it was."""
        return [request.message for request in self.requests]


def bootstrap_of(server: ScriptedServer) -> str:
    return f"{server.address.host}:{server.address.port}"


def admin_of(server: ScriptedServer) -> Admin:
    return Admin({"bootstrap.servers": bootstrap_of(server), "default.api.timeout.ms": 10_000})
