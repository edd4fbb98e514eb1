"""The cells of the state table, walked through the wire: a broker with sockets answers as the table says.

A deleted group is Dead only for the requests that waited for its last records; no client can reach it later. So the
group log of the broker, which runs in this process, holds an append until the request waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.broker.server import Broker
from holdfast.coordinator.classic.state_machine import (
    COMPLETING,
    DEAD,
    EMPTY,
    OUTCOMES,
    PREPARING,
    GroupState,
    Outcome,
    RequestKind,
)
from holdfast.coordinator.runtime.context import QueuedRequest
from holdfast.wire.apis.add_members_to_group import AddMembersToGroupRequest
from holdfast.wire.apis.cancel_registration import CancelRegistrationRequest
from holdfast.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from holdfast.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from holdfast.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from holdfast.wire.consumer_protocol import Subscription, decode_assignment, encode_subscription
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupRecord
from tests.broker.group_members import (
    RANGE,
    SYNC_VERSION,
    Protocols,
    WireMember,
    assign_evenly,
    described,
    form,
    partitions,
    wait_for_state,
)
from tests.conformance import faulty_broker
from tests.support.eventually import eventually

Address = tuple[str, int]

CELLS: Final = [
    (kind, state)
    for kind, row in OUTCOMES.items()
    for state, expected in row.items()
    if expected is not Outcome.IMPOSSIBLE
]
OF_STANDBYS: Final = {RequestKind.JOIN_STANDBY, RequestKind.SYNC_STANDBY, RequestKind.HEARTBEAT_STANDBY}
OF_REQUESTED: Final = {RequestKind.JOIN_REQUESTED, RequestKind.HEARTBEAT_REQUESTED}
SILENCE_S: Final = 0.15
"""Where the table expects no response yet, none comes for so long. A response that it expects has much longer."""
GROUP_RESOURCE, SET = 32, 0
EPOCHS_PER_GENERATION: Final = 1_000_000
OTHER_BYTES: Final[Protocols] = (("range", encode_subscription(Subscription(["orders"], user_data=b"other"))),)
OTHER_TOPICS: Final[Protocols] = (("range", encode_subscription(Subscription(["orders", "other"]))),)


class HeldAppends:
    """The group log of a broker, which holds the next append of a group for as long as a test needs."""

    def __init__(self, broker: Broker) -> None:
        self._groups = broker.groups.coordinator._groups
        self._append = broker.groups.group_log.append
        self._held: dict[str, asyncio.Future[None] | None] = {}
        broker.groups.group_log.append = self.append  # type: ignore[method-assign]

    def append(self, group_id: str, records: Sequence[GroupRecord], now_ms: int) -> asyncio.Future[None]:
        stored = self._append(group_id, records, now_ms)
        if group_id not in self._held:
            return stored
        released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held[group_id] = released
        return released

    def hold(self, group_id: str) -> None:
        self._held[group_id] = None

    def wait_for_queued(self, group_id: str, count: int) -> None:
        """For this many requests of the group to be queued; timers are queued as well."""
        queued = self._groups[group_id].queued_commands

        def all_queued() -> bool:
            return sum(isinstance(command, QueuedRequest) for command in list(queued)) == count

        eventually(all_queued, f"{count} requests of {group_id} wait for its append", of=queued)

    def release(self, group_id: str) -> None:
        stored = self._held.pop(group_id)
        assert stored is not None
        stored.get_loop().call_soon_threadsafe(stored.set_result, None)


@pytest.fixture(scope="module")
def brokers(monkeypatch_module: pytest.MonkeyPatch) -> list[Broker]:
    """Those that are started in this process."""
    started: list[Broker] = []

    def start(*arguments: Any) -> Broker:
        started.append(Broker(*arguments))
        return started[-1]

    monkeypatch_module.setattr(faulty_broker, "Broker", start)
    return started


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def address(brokers: list[Broker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with broker_with_topics(tmp_path_factory.mktemp("states"), initial_delay_ms=300) as address:
        assert brokers
        yield address


@contextmanager
def broker_with_topics(directory: Path, initial_delay_ms: int) -> Iterator[Address]:
    settings = {"group.initial.rebalance.delay.ms": str(initial_delay_ms), "offsets.topic.num.partitions": "2"}
    with faulty_broker.broker_in_this_process(settings, directory) as address:
        with WireMember(address, "") as client:
            client.create_topic("orders", 4)
            client.create_topic("other")
        yield address


@pytest.fixture(scope="module")
def appends(address: Address, brokers: list[Broker]) -> HeldAppends:  # the broker has to run
    return HeldAppends(brokers[0])


@pytest.fixture(scope="module")
def address_for_empty(appends: HeldAppends, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Of a second broker; `appends` has taken the first. Here a group that was empty is still preparing its first
    rebalance when a test looks, however late that is. No test waits for the end of the delay."""
    with broker_with_topics(tmp_path_factory.mktemp("empty"), initial_delay_ms=10_000) as address:
        yield address


# -- groups in each state ----------------------------------------------------------------------------------------------


@dataclass
class Scene:
    leader: WireMember
    follower: WireMember
    other: WireMember
    standby: WireMember
    newcomer: WireMember
    """A connection that no member was seen on yet."""
    admin: WireMember
    is_answered: bool = field(kw_only=True)
    """Whether the table expects a response to the request at once."""

    @property
    def group(self) -> str:
        return self.leader.group


def scene(address: Address, group: str, state: GroupState, kind: RequestKind, stack: ExitStack) -> Scene:
    """A group of three static members in this state. The third is the one that makes it rebalance."""
    members = [
        stack.enter_context(WireMember(address, group, instance)) for instance in ("L", "F", "O", "S", "N", None)
    ]
    found = Scene(*members, is_answered=OUTCOMES[kind][state] not in (Outcome.AWAIT, Outcome.REBALANCE))
    if state is EMPTY:
        assert commit(found.admin, generation=-1, member_id="").topics[0].partitions[0].error_code == 0
        return found
    if state is DEAD:
        form(found.leader)
        assign_evenly(found.leader)
        assert found.leader.commit(7) == 0
        return found
    form(found.leader, found.follower, found.other)
    assign_evenly(found.leader, found.follower, found.other)
    assert found.other.commit(7) == 0
    if kind in OF_STANDBYS:
        assert configure(found.admin, 3).responses[0].error_code == 0
        found.standby.join()
    if kind in OF_REQUESTED:
        resync(found)
    if state in (PREPARING, COMPLETING):
        found.other.send_join(OTHER_BYTES)
        wait_for_state(found.admin, group, PREPARING)
    if state is COMPLETING:
        found.leader.send_join()
        found.follower.send_join()
        for member in (found.leader, found.follower, found.other):
            assert member.joined().error_code == 0
        if kind in OF_STANDBYS:
            found.standby.join()
    return found


def resync(found: Scene) -> None:
    """The follower's assignment grows, so that it is asked to rejoin."""
    leader = found.leader
    grown = [SyncGroupRequestAssignment(found.follower.member_id, partitions(1, 3))]
    epoch = leader.generation * EPOCHS_PER_GENERATION
    request = SyncGroupRequest(
        leader.group,
        leader.generation,
        leader.member_id,
        leader.instance_id,
        "consumer",
        "range",
        grown,
        resync_from_epoch=epoch,
    )
    assert leader.ask(request, SYNC_VERSION).error_code == 0


# -- requests ----------------------------------------------------------------------------------------------------------


def commit(client: WireMember, generation: int, member_id: str, instance_id: str | None = None) -> Any:
    topic = OffsetCommitRequestTopic("orders", partitions=[OffsetCommitRequestPartition(0, 7)])
    return client.ask(OffsetCommitRequest(client.group, generation, member_id, instance_id, topics=[topic]), 9)


def configure(client: WireMember, target_size: int) -> Any:
    configs = [IncrementalAlterableConfig("target.group.size", SET, str(target_size))]
    resource = IncrementalAlterConfigsResource(GROUP_RESOURCE, client.group, configs)
    return client.ask(IncrementalAlterConfigsRequest([resource], False), 1)


def join_of(found: Scene, member: WireMember, protocols: Protocols = RANGE) -> Any:
    member.send_join(protocols)
    return response_of(found, member, member.joined)


def sync_of(found: Scene, member: WireMember) -> Any:
    member.send_sync()
    return response_of(found, member, member.synced)


def response_of(found: Scene, member: WireMember, receive: Callable[[], Any]) -> Any:
    """The response; None if the table expects none yet, and none comes within a moment."""
    if found.is_answered:
        return receive()
    patience_s = member.socket.gettimeout()
    member.socket.settimeout(SILENCE_S)
    try:
        return receive()
    except TimeoutError:
        return None
    finally:
        member.socket.settimeout(patience_s)


def unknown(found: Scene) -> WireMember:
    """The newcomer, as a member that the group does not know."""
    found.newcomer.instance_id, found.newcomer.member_id, found.newcomer.generation = None, "nobody", 1
    return found.newcomer


def or_unknown(found: Scene, member: WireMember) -> WireMember:
    return member if member.member_id else unknown(found)


def heartbeat_of(member: WireMember) -> Any:
    return member.ask(HeartbeatRequest(member.group, member.generation, member.member_id, member.instance_id), 4)


def restarted(found: Scene) -> WireMember:
    found.newcomer.instance_id = found.follower.instance_id
    return found.newcomer


def delete_offsets(found: Scene) -> Any:
    topics = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)]) for name in ("orders", "other")]
    return found.admin.ask(OffsetDeleteRequest(found.group, topics), 0)


def fetch_offsets(found: Scene) -> Any:
    return found.admin.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(found.group, topics=None)]), 9)


def leave(found: Scene) -> Any:
    entry = MemberIdentity(found.follower.member_id or "nobody", found.follower.instance_id)
    return found.admin.ask(LeaveGroupRequest(found.group, members=[entry]), 5)


def commit_of(found: Scene) -> Any:
    member = or_unknown(found, found.leader)
    return commit(member, member.generation, member.member_id, member.instance_id)


REQUESTS: Final[Mapping[RequestKind, Callable[[Scene], Any]]] = {
    RequestKind.JOIN_NEW: lambda found: join_of(found, found.newcomer),
    RequestKind.JOIN_UNKNOWN: lambda found: join_of(found, unknown(found)),
    RequestKind.JOIN_STATIC_RESTARTED: lambda found: join_of(found, restarted(found)),
    RequestKind.JOIN_UNCHANGED: lambda found: join_of(found, found.follower),
    RequestKind.JOIN_UNCHANGED_LEADER: lambda found: join_of(found, found.leader),
    RequestKind.JOIN_CHANGED: lambda found: join_of(found, found.follower, OTHER_TOPICS),
    RequestKind.JOIN_REQUESTED: lambda found: join_of(found, found.follower, OTHER_BYTES),
    RequestKind.JOIN_STANDBY: lambda found: join_of(found, found.standby),
    RequestKind.SYNC: lambda found: sync_of(found, or_unknown(found, found.follower)),
    RequestKind.SYNC_STANDBY: lambda found: sync_of(found, found.standby),
    RequestKind.HEARTBEAT: lambda found: heartbeat_of(or_unknown(found, found.leader)),
    RequestKind.HEARTBEAT_REQUESTED: lambda found: heartbeat_of(found.follower),
    RequestKind.HEARTBEAT_STANDBY: lambda found: heartbeat_of(found.standby),
    RequestKind.LEAVE: leave,
    RequestKind.COMMIT: commit_of,
    RequestKind.COMMIT_WITHOUT_GENERATION: lambda found: commit(found.admin, -1, ""),
    RequestKind.FETCH_OFFSETS: fetch_offsets,
    RequestKind.DELETE_OFFSETS: delete_offsets,
    RequestKind.DELETE_GROUP: lambda found: found.admin.ask(DeleteGroupsRequest([found.group]), 2),
    RequestKind.ADD_MEMBERS: lambda found: found.admin.ask(AddMembersToGroupRequest(found.group, ["R"], 1_000), 0),
    RequestKind.CANCEL_REGISTRATION: lambda found: found.admin.ask(CancelRegistrationRequest(found.group, None), 0),
    RequestKind.CONFIGURE: lambda found: configure(found.admin, 5),
}


def response_of_dead(found: Scene, kind: RequestKind, appends: HeldAppends) -> Any:
    """The last member leaves, the group is deleted, and the request waits for both."""
    group = found.group
    appends.hold(group)
    assert found.leader.leave().error_code == 0
    found.other.send(DeleteGroupsRequest([group]), 2)
    appends.wait_for_queued(group, 1)
    with ThreadPoolExecutor(1) as client:
        responding = client.submit(REQUESTS[kind], found)
        appends.wait_for_queued(group, 2)
        appends.release(group)
        response = responding.result()
    assert found.other.receive(DELETE_GROUPS, 2)[1].results[0].error_code == 0
    return response


# -- what they get -----------------------------------------------------------------------------------------------------


def error_of(kind: RequestKind, response: Any) -> ErrorCode:
    """Of the whole request; of an API that has none, the first of its entries."""
    if kind in (RequestKind.COMMIT, RequestKind.COMMIT_WITHOUT_GENERATION):
        return ErrorCode(response.topics[0].partitions[0].error_code)
    first = {
        RequestKind.FETCH_OFFSETS: "groups",
        RequestKind.DELETE_GROUP: "results",
        RequestKind.CONFIGURE: "responses",
    }.get(kind)
    return ErrorCode((response if first is None else getattr(response, first)[0]).error_code)


def assigned(response: Any) -> list[tuple[str, list[int]]]:
    assert response.error_code == 0, response
    return [(entry.topic, entry.partitions) for entry in decode_assignment(response.assignment).assigned_partitions]


def gets(found: Scene, kind: RequestKind, state: GroupState, response: Any) -> None:
    expected, after = OUTCOMES[kind][state], described(found.admin, found.group).group_state
    match expected:
        case Outcome.AWAIT:
            assert (response, after) == (None, state)
        case Outcome.REBALANCE:
            assert (response, after) == (None, PREPARING)
        case Outcome.CURRENT_GENERATION | Outcome.REPLACE:
            assert (response.error_code, after) == (0, state)
            assert response.generation_id == found.leader.generation
            assert (response.member_id == found.follower.member_id) is (kind in _OF_FOLLOWER)
        case Outcome.EMPTY_ASSIGNMENT:
            assert assigned(response) == []
        case Outcome.ASSIGNMENT:
            assert assigned(response) == [("orders", [1])]
        case Outcome.UNSUBSCRIBED:
            codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
            assert codes == {"orders": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "other": 0}
        case _:
            assert error_of(kind, response) is expected.error


_OF_FOLLOWER: Final = {RequestKind.JOIN_UNCHANGED, RequestKind.JOIN_REQUESTED}


@pytest.mark.parametrize(("kind", "state"), CELLS, ids=[f"{kind.name}-{state.name}" for kind, state in CELLS])
def test_a_request_gets_what_the_table_says(
    address: Address, address_for_empty: Address, appends: HeldAppends, kind: RequestKind, state: GroupState
) -> None:
    with ExitStack() as stack:
        found = scene(address_for_empty if state is EMPTY else address, f"{kind.name}-{state.name}", state, kind, stack)

        response = response_of_dead(found, kind, appends) if state is DEAD else REQUESTS[kind](found)

        gets(found, kind, state, response)
