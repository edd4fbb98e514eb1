"""6.L, 6.M and the offsets of 6.N: commit, fetch and delete."""

from __future__ import annotations

from holdfast.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from holdfast.wire.consumer_protocol import Subscription, encode_subscription
from tests.conformance.member import Member, joined, pair, stable
from tests.conformance.scenario import Listed, scenario
from tests.conformance.scene import Scene
from tests.conformance.versions import NAMES_PROTOCOL, NEWEST, STATIC

CHANGED = (("range", b"\x77"),)
EVERYWHERE = {"orders": [0, 1, 2], "payments": [0]}
NOWHERE = {"no-such-topic": [0], "orders": [99]}


@scenario(157, 171, 178)
def simple_consumer_commits(scene: Scene) -> None:
    consumer = Member(scene, "A")
    consumer.commits(97, "orders", "payments", epoch=15, metadata="m")
    scene.describes()
    scene.lists()
    scene.fetches_offsets(EVERYWHERE)
    if scene.row.number > 0:
        scene.fetches_offsets(None)
    consumer.commits(98, metadata=None)
    scene.fetches_offsets(EVERYWHERE)


@scenario(157)
def stranger_commits_in_an_unknown_group(scene: Scene) -> None:
    stranger = Member(scene, "X")
    stranger.commits(generation_id_or_member_epoch=1, member_id="x")
    stranger.commits(generation_id_or_member_epoch=0, member_id="")
    scene.describes()
    stranger.commits(generation_id_or_member_epoch=-1, member_id="x")
    scene.describes()


@scenario(157)
def negative_offset_and_long_metadata(scene: Scene) -> None:
    consumer = Member(scene, "A")
    consumer.commits(-1)
    consumer.commits(-7)
    consumer.commits(5, metadata="m" * 4097)
    consumer.commits(6, metadata="m" * 4096)
    scene.fetches_offsets({"orders": [0]})


@scenario(160, since=NEWEST)
def group_without_a_name(scene: Scene) -> None:
    """In one row only: there is one such group on a server, and the rows are played at once."""
    consumer = Member(scene, "A")
    consumer.commits(5, group_id="")
    scene.fetches_offsets({"orders": [0]}, group="")
    scene.describes("")
    scene.deletes_offsets({"orders": [0]}, group="")
    scene.deletes("")
    scene.describes("")


@scenario(162, 167)
def strangers_commit_in_a_stable_and_in_an_empty_group(scene: Scene) -> None:
    member, stranger = Member(scene, "A"), Member(scene, "X")
    stable(scene, member)
    stranger.commits(3)
    member.commits(4)
    member.commits(5, generation_id_or_member_epoch=2)
    member.commits(5, generation_id_or_member_epoch=-1)
    stranger.commits(5, generation_id_or_member_epoch=1, member_id="x")
    member.leaves()
    member.commits(6)
    stranger.commits(7)
    scene.fetches_offsets({"orders": [0]})


@scenario(
    167,
    since=STATIC,
    listed=[Listed(51, "L hears OffsetCommit: …error_code=82…", "L hears OffsetCommit: …error_code=25…")],
)
def fenced_member_commits(scene: Scene) -> None:
    leader, follower = pair(scene)
    leader.commits(3, "orders", "payments", member_id=follower.member_id)
    leader.commits(3, group_instance_id="nobody")
    leader.commits(3, member_id="", generation_id_or_member_epoch=-1)
    leader.commits(4)
    scene.fetches_offsets({"orders": [0]})


@scenario(164)
def commit_before_the_assignment(scene: Scene) -> None:
    member = Member(scene, "A")
    joined(scene, member)
    member.commits(3)
    member.commits(3, generation_id_or_member_epoch=9)
    member.commits(3, generation_id_or_member_epoch=-1, member_id="")
    scene.fetches_offsets({"orders": [0]})


@scenario(166)
def commit_while_the_group_rebalances(scene: Scene) -> None:
    leader, follower = Member(scene, "A"), Member(scene, "B")
    stable(scene, leader, follower)
    follower.sends_join(protocols=CHANGED)
    follower.is_parked()
    leader.commits(3)
    leader.commits(4, generation_id_or_member_epoch=9)
    scene.fetches_offsets({"orders": [0]})


@scenario(
    169,
    listed=[
        Listed(
            12,
            "A hears OffsetCommit: …no-such-topic…orders…payments…",
            "A hears OffsetCommit: …orders…no-such-topic…payments…",
        )
    ],
)
def commit_for_an_unknown_topic_among_others(scene: Scene) -> None:
    consumer = Member(scene, "A")
    consumer.commits(3, "orders", "no-such-topic", "payments")
    consumer.commits(3, "no-such-topic")
    scene.fetches_offsets(EVERYWHERE)


@scenario(176, 181)
def offsets_of_an_unknown_group(scene: Scene) -> None:
    scene.fetches_offsets(EVERYWHERE)
    scene.fetches_offsets({})
    if scene.row.number > 0:
        scene.fetches_offsets(None)
    scene.describes()


@scenario(176)
def offsets_of_unknown_topics(scene: Scene) -> None:
    Member(scene, "A").commits(3)
    scene.fetches_offsets(NOWHERE)
    scene.fetches_offsets({"orders": [0, 0]})


@scenario(197, 200, 202)
def offsets_are_deleted(scene: Scene) -> None:
    scene.deletes_offsets({"orders": [0]})
    Member(scene, "A").commits(3, "orders", "payments")
    scene.deletes_offsets({"orders": [0, 1]})
    scene.fetches_offsets(EVERYWHERE)
    scene.deletes_offsets({"no-such-topic": [0], "payments": [9]})
    scene.deletes_offsets({}, group="")


@scenario(198)
def offsets_of_a_living_group_of_another_type_are_deleted(scene: Scene) -> None:
    member = Member(scene, "A")
    member.joins(protocol_type="My Protocol")
    named = {"protocol_type": "My Protocol"} if scene.row.number >= NAMES_PROTOCOL else {}
    member.syncs({member: b"\x01"}, **named)
    member.commits(3)
    scene.deletes_offsets({"orders": [0]})


@scenario(201)
def offsets_are_deleted_while_the_subscription_is_unreadable(scene: Scene) -> None:
    member = Member(scene, "A")
    stable(scene, member)
    member.commits(3, "orders", "payments")
    scene.deletes_offsets({"orders": [0], "payments": [0]})
    scene.fetches_offsets(EVERYWHERE)


@scenario(201)
def offsets_of_subscribed_topics_are_deleted(scene: Scene) -> None:
    subscribed = encode_subscription(Subscription(["orders"]))
    member = Member(scene, "A", protocols=(("range", subscribed),))
    stable(scene, member)
    member.commits(3, "orders", "payments")
    scene.deletes_offsets({"orders": [0], "payments": [0]})
    scene.fetches_offsets(EVERYWHERE)


@scenario(169)
def commit_for_a_partition_that_is_not_there(scene: Scene) -> None:
    consumer = Member(scene, "A")
    consumer.commits(3, partition=99)
    consumer.commits(3, partition=-1)
    scene.fetches_offsets({"orders": [99]})
    scene.describes()


@scenario(178, since=7)
def offsets_of_several_groups(scene: Scene) -> None:
    Member(scene, "A").commits(3)
    known = OffsetFetchRequestGroup(scene.group, topics=None)
    unknown = OffsetFetchRequestGroup(f"{scene.group}-other", topics=None)
    scene.asks(OffsetFetchRequest(groups=[unknown, known]))
    scene.asks(OffsetFetchRequest(groups=[known], require_stable=True))
    scene.asks(OffsetFetchRequest(groups=[]))


@scenario(178, since=8)
def member_fetches_its_offsets(scene: Scene) -> None:
    member = Member(scene, "A")
    stable(scene, member)
    member.commits(3)
    for member_id, epoch in ((member.member_id, 1), (member.member_id, 9), ("x", 1), (None, -1), ("", 0)):
        scene.asks(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(scene.group, member_id, epoch, None)]))
