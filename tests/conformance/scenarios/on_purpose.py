"""Where Holdfast differs on purpose, and no behaviour of the catalogue shows it. A control stands beside each."""

from __future__ import annotations

from holdfast.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.consumer_protocol import Subscription, TopicPartitions, encode_subscription
from tests.conformance.member import Member, pair, stable
from tests.conformance.scenario import Listed, scenario
from tests.conformance.scene import JAVA, Scene, introduce
from tests.conformance.versions import HANDS_OUT_IDS, NEWEST, STATIC

MOST_UNUSED_IDS = 1000
TRANSACTION = 1
"""The type of key that FindCoordinator is asked for a producer's coordinator with."""


def growing_pair(scene: Scene) -> tuple[Member, Member, str]:
    """Static members, subscribed to a topic of their own."""
    topic = f"{scene.group}-topic"
    scene.creates_topic(topic, 2)
    leader, follower = pair(scene, protocols=(("range", encode_subscription(Subscription([topic]))),))
    return leader, follower, topic


@scenario(
    since=STATIC,
    listed=[
        Listed(24, "…group_state='Stable'…", "…group_state='PreparingRebalance'…"),
        Listed(24, "F hears Heartbeat: {error_code=0}", "F hears Heartbeat: {error_code=27}"),
    ],
)
def topic_grows_while_nobody_knows_that_it_leads(scene: Scene) -> None:
    """Row 9 is the other way: there the restarted leader was told, and will see the new partitions itself."""
    leader, follower, topic = growing_pair(scene)
    again = Member(scene, "L2", "L", protocols=leader.protocols)
    again.joins()
    again.syncs()
    scene.grows_topic(topic, 4)
    scene.awaits_state("PreparingRebalance")
    follower.beats()


@scenario(since=STATIC)
def topic_grows_while_the_leader_knows(scene: Scene) -> None:
    leader, follower, topic = growing_pair(scene)
    scene.grows_topic(topic, 4)
    scene.awaits_state("PreparingRebalance")
    leader.beats()
    follower.beats()


def subscribed(*topics: str, owned: int = 0) -> tuple[tuple[str, bytes], ...]:
    owns = [TopicPartitions(topics[0], list(range(owned)))]
    return (("range", encode_subscription(Subscription(list(topics), owned_partitions=owns))),)


@scenario(
    since=STATIC,
    listed=[
        Listed(55, "F2 hears JoinGroup: {error_code=0, generation_id=1, …", "F2 is parked"),
        Listed(55, "L hears Heartbeat: {error_code=0}", "L hears Heartbeat: {error_code=27}"),
        Listed(55, "…group_state='Stable'…", "…group_state='PreparingRebalance'…"),
    ],
)
def follower_restarts_with_one_more_topic(scene: Scene) -> None:
    leader, _ = pair(scene, protocols=subscribed("orders"))
    again = Member(scene, "F2", "F", protocols=subscribed("orders", "payments"))
    again.sends_join()
    again.is_parked()
    leader.beats()
    scene.describes()


@scenario(since=STATIC)
def follower_restarts_with_the_same_topics_in_other_bytes(scene: Scene) -> None:
    leader, _ = pair(scene, protocols=subscribed("orders", "payments", owned=1))
    again = Member(scene, "F2", "F", protocols=subscribed("orders", "payments", owned=2))
    again.joins()
    again.syncs()
    leader.beats()
    scene.describes()


def first_of_many_ids(scene: Scene, others: int) -> None:
    """Its id is known if its join waits for the member that is there; an unknown one is refused at once."""
    member, first, crowd = (Member(scene, name, session_ms=20_000, rebalance_ms=20_000) for name in ("M", "A", "crowd"))
    stable(scene, member)
    first.takes_id()
    for _ in range(others // 10):
        for _ in range(10):
            crowd.says_join()
        for _ in range(10):
            crowd.takes_answer()
    first.says_join()
    first.hears()


@scenario(since=HANDS_OUT_IDS, listed=[Listed(25, "A hears nothing", "A hears JoinGroup: {error_code=25, …")])
def oldest_of_more_than_a_thousand_unused_ids(scene: Scene) -> None:
    first_of_many_ids(scene, MOST_UNUSED_IDS)


@scenario(since=HANDS_OUT_IDS)
def oldest_of_fewer_unused_ids(scene: Scene) -> None:
    first_of_many_ids(scene, MOST_UNUSED_IDS - 10)


@scenario(
    since=NEWEST,
    listed=[
        Listed(26, "…{error_code=3, name='__group_ledger', …", "…{error_code=0, name='__group_ledger', …"),
    ],
)
def ledger_is_a_topic(scene: Scene) -> None:
    scene.asks(MetadataRequest([MetadataRequestTopic(name="__group_ledger")], allow_auto_topic_creation=False), 12)


@scenario(
    since=1,
    listed=[Listed(1, "admin hears FindCoordinator: …", "admin hears FindCoordinator: …error_code=53, …transaction…")],
)
def coordinator_of_a_transactional_producer(scene: Scene) -> None:
    scene.finds_coordinator(key_type=TRANSACTION)


@scenario(
    since=NEWEST,
    listed=[
        Listed(
            4,
            "admin hears ConsumerGroupHeartbeat: {error_code=0, …",
            "admin hears ConsumerGroupHeartbeat: {error_code=35, …",
        )
    ],
)
def heartbeat_of_the_newer_protocol(scene: Scene) -> None:
    scene.asks(
        ConsumerGroupHeartbeatRequest(
            scene.group,
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
            "admin hears DescribeGroups: …group_id='GROUP'…group_id='GROUP'…group_id='other'…",
            "admin hears DescribeGroups: …group_id='GROUP'…group_id='other'…",
        )
    ]
)
def group_is_described_twice_in_one_request(scene: Scene) -> None:
    scene.asks(DescribeGroupsRequest([scene.group, scene.group, "other"]))


@scenario(
    since=STATIC,
    listed=[
        Listed(51, "F hears Heartbeat: {error_code=82}", "F hears Heartbeat: {error_code=25}"),
        Listed(51, "F hears SyncGroup: {error_code=82, …", "F hears SyncGroup: {error_code=25, …"),
        Listed(51, "F hears OffsetCommit: …error_code=82…", "F hears OffsetCommit: …error_code=25…"),
    ],
)
def static_member_has_forgotten_its_member_id(scene: Scene) -> None:
    _, follower = pair(scene)
    follower.beats(member_id="")
    follower.syncs(member_id="")
    follower.commits(3, member_id="")
    follower.beats()


@scenario(since=STATIC)
def static_member_with_a_wrong_member_id(scene: Scene) -> None:
    """The control: a member id that is somebody else's, or nobody's, is fenced."""
    leader, follower = pair(scene)
    follower.beats(member_id=leader.member_id)
    follower.syncs(member_id="nobody")
    follower.commits(3, member_id="nobody")
    follower.leaves(member_id="nobody")
    follower.leaves(member_id="")


def leader_restarts(scene: Scene, software: str) -> None:
    leader, _ = pair(scene)
    again = Member(scene, "L2", "L", protocols=leader.protocols)
    introduce(again, software)
    again.joins()
    again.syncs()
    again.beats()


@scenario(
    since=NEWEST,
    listed=[
        Listed(
            52,
            "L2 hears JoinGroup: …leader=L2.1, skip_assignment=True…",
            "L2 hears JoinGroup: …leader=L.1, skip_assignment=False, …members=[]…",
        )
    ],
)
def leader_restarts_with_software_that_nobody_knows(scene: Scene) -> None:
    leader_restarts(scene, "somebody")


@scenario(since=NEWEST)
def leader_restarts_with_kafkas_own_client(scene: Scene) -> None:
    leader_restarts(scene, JAVA)
