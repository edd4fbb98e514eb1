"""Intentional differences that no scenario of a behaviour shows, each with a control."""

from __future__ import annotations

from holdfast.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.consumer_protocol import Subscription, TopicPartitions, encode_subscription
from tests.conformance.member import Member, pair, stable
from tests.conformance.recorder import JAVA, Recorder, introduce
from tests.conformance.scenario import Listed, scenario
from tests.conformance.versions import HANDS_OUT_IDS, NEWEST, STATIC

MAX_UNUSED_IDS = 1000
TRANSACTION = 1
"""The type of key that FindCoordinator is asked for a producer's coordinator with."""


def growing_pair(recorder: Recorder) -> tuple[Member, Member, str]:
    """Static members, subscribed to a topic of their own."""
    topic = f"{recorder.group}-topic"
    recorder.creates_topic(topic, 2)
    leader, follower = pair(recorder, protocols=(("range", encode_subscription(Subscription([topic]))),))
    return leader, follower, topic


@scenario(
    since=STATIC,
    listed=[
        Listed(24, "…group_state='Stable'…", "…group_state='PreparingRebalance'…"),
        Listed(24, "F receives Heartbeat: {error_code=0}", "F receives Heartbeat: {error_code=27}"),
    ],
)
def topic_grows_while_nobody_knows_that_it_leads(recorder: Recorder) -> None:
    """Row 9 is the other way: there the restarted leader was informed, and will see the new partitions itself."""
    leader, follower, topic = growing_pair(recorder)
    again = Member(recorder, "L2", "L", protocols=leader.protocols)
    again.joins()
    again.syncs()
    recorder.grows_topic(topic, 4)
    recorder.awaits_state("PreparingRebalance")
    follower.beats()


@scenario(since=STATIC)
def topic_grows_while_the_leader_knows(recorder: Recorder) -> None:
    leader, follower, topic = growing_pair(recorder)
    recorder.grows_topic(topic, 4)
    recorder.awaits_state("PreparingRebalance")
    leader.beats()
    follower.beats()


def subscribed(*topics: str, owned: int = 0) -> tuple[tuple[str, bytes], ...]:
    owns = [TopicPartitions(topics[0], list(range(owned)))]
    return (("range", encode_subscription(Subscription(list(topics), owned_partitions=owns))),)


@scenario(
    since=STATIC,
    listed=[
        Listed(55, "F2 receives JoinGroup: {error_code=0, generation_id=1, …", "F2 is pending"),
        Listed(55, "L receives Heartbeat: {error_code=0}", "L receives Heartbeat: {error_code=27}"),
        Listed(55, "…group_state='Stable'…", "…group_state='PreparingRebalance'…"),
    ],
)
def follower_restarts_with_one_more_topic(recorder: Recorder) -> None:
    leader, _ = pair(recorder, protocols=subscribed("orders"))
    again = Member(recorder, "F2", "F", protocols=subscribed("orders", "payments"))
    again.sends_join()
    again.is_pending()
    leader.beats()
    recorder.describes()


@scenario(since=STATIC)
def follower_restarts_with_the_same_topics_in_other_bytes(recorder: Recorder) -> None:
    leader, _ = pair(recorder, protocols=subscribed("orders", "payments", owned=1))
    again = Member(recorder, "F2", "F", protocols=subscribed("orders", "payments", owned=2))
    again.joins()
    again.syncs()
    leader.beats()
    recorder.describes()


def first_of_many_ids(recorder: Recorder, others: int) -> None:
    """Its id is known if its join waits for the member that is there; an unknown one is refused at once."""
    member, first, crowd = (
        Member(recorder, name, session_ms=20_000, rebalance_ms=20_000) for name in ("M", "A", "crowd")
    )
    stable(recorder, member)
    first.takes_id()
    for _ in range(others // 10):
        for _ in range(10):
            crowd.sends_join_request()
        for _ in range(10):
            crowd.takes_response()
    first.sends_join_request()
    first.receives()


@scenario(since=HANDS_OUT_IDS, listed=[Listed(25, "A receives nothing", "A receives JoinGroup: {error_code=25, …")])
def oldest_of_more_than_a_thousand_unused_ids(recorder: Recorder) -> None:
    first_of_many_ids(recorder, MAX_UNUSED_IDS)


@scenario(since=HANDS_OUT_IDS)
def oldest_of_fewer_unused_ids(recorder: Recorder) -> None:
    first_of_many_ids(recorder, MAX_UNUSED_IDS - 10)


@scenario(
    since=NEWEST,
    listed=[
        Listed(26, "…{error_code=3, name='__group_ledger', …", "…{error_code=0, name='__group_ledger', …"),
    ],
)
def ledger_is_a_topic(recorder: Recorder) -> None:
    recorder.requests(
        MetadataRequest([MetadataRequestTopic(name="__group_ledger")], allow_auto_topic_creation=False), 12
    )


@scenario(
    since=1,
    listed=[
        Listed(1, "admin receives FindCoordinator: …", "admin receives FindCoordinator: …error_code=53, …transaction…")
    ],
)
def coordinator_of_a_transactional_producer(recorder: Recorder) -> None:
    recorder.finds_coordinator(key_type=TRANSACTION)


@scenario(
    since=NEWEST,
    listed=[
        Listed(
            4,
            "admin receives ConsumerGroupHeartbeat: {error_code=0, …",
            "admin receives ConsumerGroupHeartbeat: {error_code=35, …",
        )
    ],
)
def heartbeat_of_the_newer_protocol(recorder: Recorder) -> None:
    recorder.requests(
        ConsumerGroupHeartbeatRequest(
            recorder.group,
            "a-member",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        ),
        1,
    )


@scenario(
    listed=[
        Listed(
            14,
            "admin receives DescribeGroups: …group_id='GROUP'…group_id='GROUP'…group_id='other'…",
            "admin receives DescribeGroups: …group_id='GROUP'…group_id='other'…",
        )
    ]
)
def group_is_described_twice_in_one_request(recorder: Recorder) -> None:
    recorder.requests(DescribeGroupsRequest([recorder.group, recorder.group, "other"]))


@scenario(
    since=STATIC,
    listed=[
        Listed(51, "F receives Heartbeat: {error_code=82}", "F receives Heartbeat: {error_code=25}"),
        Listed(51, "F receives SyncGroup: {error_code=82, …", "F receives SyncGroup: {error_code=25, …"),
        Listed(51, "F receives OffsetCommit: …error_code=82…", "F receives OffsetCommit: …error_code=25…"),
    ],
)
def static_member_has_forgotten_its_member_id(recorder: Recorder) -> None:
    _, follower = pair(recorder)
    follower.beats(member_id="")
    follower.syncs(member_id="")
    follower.commits(3, member_id="")
    follower.beats()


@scenario(since=STATIC)
def static_member_with_a_wrong_member_id(recorder: Recorder) -> None:
    """The control: a member id that is somebody else's, or nobody's, is fenced."""
    leader, follower = pair(recorder)
    follower.beats(member_id=leader.member_id)
    follower.syncs(member_id="nobody")
    follower.commits(3, member_id="nobody")
    follower.leaves(member_id="nobody")
    follower.leaves(member_id="")


def leader_restarts(recorder: Recorder, software: str) -> None:
    leader, _ = pair(recorder)
    again = Member(recorder, "L2", "L", protocols=leader.protocols)
    introduce(again, software)
    again.joins()
    again.syncs()
    again.beats()


@scenario(
    since=NEWEST,
    listed=[
        Listed(
            52,
            "L2 receives JoinGroup: …leader=L2.1, skip_assignment=True…",
            "L2 receives JoinGroup: …leader=L.1, skip_assignment=False, …members=[]…",
        )
    ],
)
def leader_restarts_with_software_that_nobody_knows(recorder: Recorder) -> None:
    leader_restarts(recorder, "somebody")


@scenario(since=NEWEST)
def leader_restarts_with_kafkas_own_client(recorder: Recorder) -> None:
    leader_restarts(recorder, JAVA)
