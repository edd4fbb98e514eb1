"""Runs a scenario on one server and records it: one group, its members, and an administrator that describes it.

Each member has its own connection and remembers the id and generation that it got, as clients do; a scenario may send
others. `sends_…` only sends; `receives` waits for the response and records it; `is_pending` records that none came.
The result is the transcript, nothing else.
"""

from __future__ import annotations

import itertools
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast.wire.apis.delete_groups import DeleteGroupsRequest
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribeGroupsRequest
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from holdfast.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from holdfast.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from holdfast.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from holdfast.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
)
from holdfast.wire.headers import encode_request
from holdfast.wire.message import Api
from tests.broker.wire_client import PATIENCE_S, WireClient
from tests.conformance.restart_barrier import RestartBarrier
from tests.conformance.server import Server
from tests.conformance.transcript import Transcript
from tests.conformance.versions import Row
from tests.support.eventually import eventually

JAVA = "apache-kafka-java"
PENDING_S = 0.12
"""How long a request must stay without an answer to count as pending."""
STATE_TIMEOUT_S = 2.0
RELOADING_S = 15.0
"""How long a group may need until it is seen again after a restart."""
SILENCE_S = 1.5
"""How long one waits for an answer that never comes, before that is written down."""

LATEST = -1
LIST_OFFSETS_VERSION = 7

Partitions = Mapping[str, Sequence[int]]
"""Topic to partitions."""


class Connection(WireClient):
    """One connection under a name; what it receives goes into the transcript."""

    def __init__(self, recorder: Recorder, name: str, client_id: str = "cid", row: Row | None = None) -> None:
        super().__init__(recorder.server.address)
        introduce(self)
        self.recorder = recorder
        self.row = row or recorder.row
        self.name = name
        self.client_id = client_id
        self._pending: list[tuple[Api, int, int]] = []
        """API, version and correlation id of what has no answer yet; answers come in this order."""
        self._correlation_ids = itertools.count(1)

    def version_of(self, api: Api) -> int:
        return self.row.of(api.key)

    def sends(self, message: Any, version: int | None = None) -> None:
        used = self.version_of(message.API) if version is None else version
        correlation_id = next(self._correlation_ids)
        self._pending.append((message.API, used, correlation_id))
        self.send_bytes(encode_request(message, used, correlation_id, self.client_id))

    def receives(self, within_s: float = SILENCE_S) -> Any:
        """The next answer; written down. Silence and a closed connection are answers, too."""
        if not self._is_readable(within_s):
            self.recorder.transcript.note(f"{self.name} receives nothing")
            return None
        api = self._pending[0][0]
        try:
            answer = self.takes_response()
        except ConnectionError:
            self.recorder.transcript.note(f"{self.name} is disconnected")
            return None
        self._learn(api, answer)
        self.recorder.transcript.record(self.name, api.name, answer)
        return answer

    def takes_response(self) -> Any:
        """The next answer, and nothing is written down."""
        api, version, correlation_id = self._pending.pop(0)
        answered, answer = self.receive(api, version)
        assert answered == correlation_id, f"{self.name} receives an answer out of order"
        return answer

    def requests(self, message: Any, version: int | None = None) -> Any:
        self.sends(message, version)
        return self.receives()

    def is_pending(self) -> None:
        """There is no answer yet; if there is one, the transcript has it instead."""
        if self._is_readable(PENDING_S):
            self.receives()
        else:
            self.recorder.transcript.note(f"{self.name} is pending")

    def reconnects(self) -> None:
        """To the same address; what had no answer yet will have none."""
        reconnect(self, self.recorder.server.address)
        self._pending.clear()

    def _is_readable(self, within_s: float) -> bool:
        return bool(select.select([self.socket], [], [], within_s)[0])

    def _learn(self, api: Api, answer: Any) -> None:
        """What a member remembers of a response."""


def reconnect(client: WireClient, address: tuple[str, int]) -> None:
    client.socket.close()
    client.socket = socket.create_connection(address, PATIENCE_S)
    introduce(client)


def introduce(client: WireClient, software: str = JAVA) -> None:
    """As Kafka's own client, unless a scenario is about others: by that name Holdfast knows whether it may be asked to
    skip the assignment (difference 52)."""
    client.ask(ApiVersionsRequest(software, "1"), 3)


V = TypeVar("V", bound=WireClient)


class Recorder:
    """One group on one server, in one row of versions."""

    def __init__(self, server: Server, row: Row, group: str) -> None:
        self.server = server
        self.row = row
        self.group = group
        self.transcript = Transcript(server.address[1], {number: name for name, number in server.topics.items()})
        self.restart_barrier: RestartBarrier | None = None
        """Where the runs of the other rows wait for this one, if the server is to be restarted."""
        self._connections = ExitStack()
        self._entered: list[WireClient] = []
        self._admin = self.enter(Connection(self, "admin"))
        self._describer = self.enter(WireClient(server.address))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connections.close()

    def enter(self, connection: V) -> V:
        self._connections.enter_context(connection)
        self._entered.append(connection)
        return connection

    def waits(self, seconds: float) -> None:
        """Time passes: the one thing that a timeout needs."""
        time.sleep(seconds)

    def kills_the_server(self, down_s: float = 0.0, **settings: str) -> None:
        """As `kill -9` does; it starts again, after `down_s` and perhaps with other settings, and all connect again."""
        assert self.restart_barrier is not None, "this environment's servers are not killed"
        was_there = self._is_there()
        self.restart_barrier.restart(down_s, {name.replace("_", "."): value for name, value in settings.items()})
        for connection in self._entered:
            if isinstance(connection, Connection):
                connection.reconnects()
            else:
                reconnect(connection, self.server.address)
        if was_there:
            _describe(self._is_there, RELOADING_S)
        self.transcript.note("the server is killed and starts again")

    def _is_there(self) -> bool:
        described: DescribedGroup = self.does(DescribeGroupsRequest([self.group]), 5).groups[0]
        return described.error_code == 0 and described.group_state != "Dead"

    # -- what an administrator sees and does ---------------------------------------------------------------------------

    def describes(self, group: str | None = None) -> Any:
        return self._admin.requests(DescribeGroupsRequest([self.group if group is None else group]))

    def requests(self, message: Any, version: int | None = None) -> Any:
        """Any other request of an administrator."""
        return self._admin.requests(message, version)

    def does(self, message: Any, version: int) -> Any:
        """A request whose answer is no part of the run."""
        return self._describer.ask(message, version)

    def awaits_state(self, state: str, within_s: float = STATE_TIMEOUT_S) -> None:
        """Look until the group is in this state, then write down what is seen; also if it never is."""
        self._look_until(lambda group: group.group_state == state, within_s)
        self.describes()

    def awaits_members(self, count: int) -> None:
        """Nothing is written down: what was sent on one connection has been taken in before another one speaks."""
        self._look_until(lambda group: len(group.members) == count)

    def awaits_no_offset(self, topic: str, group: str | None = None, within_s: float = STATE_TIMEOUT_S) -> None:
        """Look until nothing is committed for partition 0 of the topic; nothing is written down."""
        wanted = OffsetFetchRequest(self.group if group is None else group, [OffsetFetchRequestTopic(topic, [0])])
        _describe(lambda: self.does(wanted, 5).topics[0].partitions[0].committed_offset == -1, within_s)

    def _look_until(self, seen: Callable[[DescribedGroup], bool], within_s: float = STATE_TIMEOUT_S) -> None:
        _describe(lambda: seen(self.does(DescribeGroupsRequest([self.group]), 5).groups[0]), within_s)

    def creates_topic(self, name: str, partitions: int) -> None:
        """Nothing is written down. Kafka answers before the leaders know of their partitions; a request that follows
        must not be refused for that."""
        self._describer.create_topic(name, partitions)
        numbers = [ListOffsetsPartition(number, -1, LATEST) for number in range(partitions)]
        wanted = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(name, numbers)])

        def is_led() -> bool:
            (found,) = self.does(wanted, LIST_OFFSETS_VERSION).topics
            return not any(one.error_code for one in found.partitions)

        eventually(is_led, f"every partition of {name} has a leader that knows of it")

    def grows_topic(self, name: str, partitions: int) -> None:
        """To so many in all."""
        (grown,) = self.does(
            CreatePartitionsRequest([CreatePartitionsTopic(name, partitions, None)], 30_000), 3
        ).results
        assert grown.error_code == 0, grown

    def lists(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> None:
        """This group's line in the list of groups; the others belong to other scenes."""
        self._admin.sends(ListGroupsRequest(list(states), list(types)))
        answer = self._admin.takes_response()
        answer.groups = [listed for listed in answer.groups if listed.group_id == self.group]
        self.transcript.record("admin", LIST_GROUPS.name, answer)

    def deletes(self, *groups: str) -> None:
        self._admin.requests(DeleteGroupsRequest(list(groups) or [self.group]))

    def finds_coordinator(self, *keys: str, key_type: int = 0) -> None:
        wanted = list(keys) or [self.group]
        if self.row.of(FIND_COORDINATOR.key) < 4:
            self._admin.requests(FindCoordinatorRequest(wanted[0], key_type))
        else:
            self._admin.requests(FindCoordinatorRequest(key_type=key_type, coordinator_keys=wanted))

    def deletes_offsets(self, partitions: Partitions, group: str | None = None) -> None:
        topics = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(number) for number in numbers])
            for topic, numbers in partitions.items()
        ]
        self._admin.requests(OffsetDeleteRequest(self.group if group is None else group, topics))

    def fetches_offsets(self, partitions: Partitions | None, group: str | None = None) -> None:
        """`None` asks for all."""
        wanted = self.group if group is None else group
        if self.row.of(OFFSET_FETCH.key) < 8:
            old = (
                None
                if partitions is None
                else [OffsetFetchRequestTopic(name, list(at)) for name, at in partitions.items()]
            )
            self._admin.requests(OffsetFetchRequest(wanted, old))
            return
        new = None if partitions is None else [self._group_topic(name, at) for name, at in partitions.items()]
        self._admin.requests(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(wanted, topics=new)]))

    def _group_topic(self, name: str, partitions: Iterable[int]) -> OffsetFetchRequestGroupTopic:
        return OffsetFetchRequestGroupTopic(name, self.server.topics[name], list(partitions))


def _describe(seen: Callable[[], bool], within_s: float) -> None:
    """Until it is seen, or never: then the run goes on, and the transcript shows it."""
    deadline = time.monotonic() + within_s
    pause_s = min(0.005 * within_s, 0.1)
    while time.monotonic() < deadline and not seen():
        time.sleep(pause_s)


__all__ = ["Connection", "Partitions", "Recorder", "Server"]
