"""Changes of topics go to the controller, once."""

from __future__ import annotations

import pytest

from holdfast import Admin
from holdfast.client.errors import ConnectionFailed
from holdfast.client.topic_admin import NewTopic
from holdfast.wire.apis.create_topics import CREATE_TOPICS, CreatableTopicResult, CreateTopicsResponse
from holdfast.wire.apis.delete_topics import DELETE_TOPICS, DeletableTopicResult, DeleteTopicsResponse
from holdfast.wire.apis.metadata import METADATA, MetadataResponse, MetadataResponseBroker
from holdfast.wire.error_codes import ErrorCode
from tests.unit.client.scripted import Peer, Request, ScriptedServer


class Controller:
    """A broker that names itself the controller, or none, and answers changes as written down."""

    def __init__(self, *answers: object, controller_id: int = 1, ranges: dict[int, tuple[int, int]] | None = None):
        self._answers = list(answers)
        self._controller_id = controller_id
        self._ranges = ranges
        self.changes: list[Request] = []

    def __call__(self, peer: Peer) -> None:
        host, port = peer.socket.getsockname()
        peer.answer_api_versions(self._ranges)
        brokers = [MetadataResponseBroker(1, host, port)]
        while True:
            request = peer.request()
            if request.api is METADATA:
                peer.answer(request, MetadataResponse(brokers=brokers, controller_id=self._controller_id))
                continue
            self.changes.append(request)
            answer = self._answers.pop(0)
            if answer is None:
                return  # hangs up
            peer.answer(request, answer)


def created(*codes: tuple[str, ErrorCode]) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name, error_code=code) for name, code in codes])


def admin_of(server: ScriptedServer) -> Admin:
    return Admin({"bootstrap.servers": f"{server.address.host}:{server.address.port}"})


def create(controller: Controller, *names: str) -> dict[str, ErrorCode | str | None]:
    with ScriptedServer(controller) as server, admin_of(server) as admin:
        results = admin.create_topics([NewTopic(name) for name in names], timeout=10)
    return {name: None if error is None else error.code or str(error) for name, error in results.items()}


def test_a_broker_that_is_no_controller_any_more_is_asked_again() -> None:
    controller = Controller(created(("a", ErrorCode.NOT_CONTROLLER)), created(("a", ErrorCode.NONE)))
    assert create(controller, "a") == {"a": None}
    assert [request.api for request in controller.changes] == [CREATE_TOPICS] * 2


def test_a_cluster_that_names_no_controller_is_asked_at_any_broker() -> None:
    assert create(Controller(created(("a", ErrorCode.NONE)), controller_id=-1), "a") == {"a": None}


def test_results_come_in_the_order_that_was_asked_and_none_is_forgotten() -> None:
    answer = created(("c", ErrorCode.NONE), ("a", ErrorCode.POLICY_VIOLATION))
    results = create(Controller(answer), "a", "b", "c")
    assert list(results.items()) == [
        ("a", ErrorCode.POLICY_VIOLATION),
        ("b", "topic 'b': the broker left it out"),
        ("c", None),
    ]


def test_a_change_that_was_lost_is_not_sent_again() -> None:
    controller = Controller(None, created(("a", ErrorCode.NONE)))
    with pytest.raises(ConnectionFailed, match="before it answered CreateTopics"):
        create(controller, "a")
    assert len(controller.changes) == 1


def test_an_older_broker_is_asked_to_delete_by_name() -> None:
    answer = DeleteTopicsResponse(responses=[DeletableTopicResult("a", error_code=0)])
    controller = Controller(answer, ranges={DELETE_TOPICS.key: (1, 3)})
    with ScriptedServer(controller) as server, admin_of(server) as admin:
        assert admin.delete_topics(["a", "a"]) == {"a": None}
    (request,) = controller.changes
    assert (request.version, request.message.topic_names) == (3, ["a"])
