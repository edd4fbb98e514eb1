"""Offsets: commit, fetch and delete."""

from __future__ import annotations

from holdfast.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from holdfast.wire.consumer_protocol import Subscription, encode_subscription
from tests.conformance.member import Member, joined, pair, stable
from tests.conformance.recorder import Recorder
from tests.conformance.scenario import Listed, scenario
from tests.conformance.versions import NAMES_PROTOCOL, NEWEST, STATIC

CHANGED = (("range", b"\x77"),)
EVERYWHERE = {"orders": [0, 1, 2], "payments": [0]}
NOWHERE = {"no-such-topic": [0], "orders": [99]}


@scenario(157, 171, 178)
def simple_consumer_commits(recorder: Recorder) -> None:
    consumer = Member(recorder, "A")
    consumer.commits(97, "orders", "payments", epoch=15, metadata="m")
    recorder.describes()
    recorder.lists()
    recorder.fetches_offsets(EVERYWHERE)
    if recorder.row.number > 0:
        recorder.fetches_offsets(None)
    consumer.commits(98, metadata=None)
    recorder.fetches_offsets(EVERYWHERE)


@scenario(157)
def unknown_member_commits_in_an_unknown_group(recorder: Recorder) -> None:
    unknown = Member(recorder, "X")
    unknown.commits(generation_id_or_member_epoch=1, member_id="x")
    unknown.commits(generation_id_or_member_epoch=0, member_id="")
    recorder.describes()
    unknown.commits(generation_id_or_member_epoch=-1, member_id="x")
    recorder.describes()


@scenario(157)
def negative_offset_and_long_metadata(recorder: Recorder) -> None:
    consumer = Member(recorder, "A")
    consumer.commits(-1)
    consumer.commits(-7)
    consumer.commits(5, metadata="m" * 4097)
    consumer.commits(6, metadata="m" * 4096)
    recorder.fetches_offsets({"orders": [0]})


@scenario(160, since=NEWEST)
def group_without_a_name(recorder: Recorder) -> None:
    """In one row only: there is one such group on a server, and the rows are run at once."""
    consumer = Member(recorder, "A")
    consumer.commits(5, group_id="")
    recorder.fetches_offsets({"orders": [0]}, group="")
    recorder.describes("")
    recorder.deletes_offsets({"orders": [0]}, group="")
    recorder.deletes("")
    recorder.describes("")


@scenario(162, 167)
def unknown_members_commit_in_a_stable_and_in_an_empty_group(recorder: Recorder) -> None:
    member, unknown = Member(recorder, "A"), Member(recorder, "X")
    stable(recorder, member)
    unknown.commits(3)
    member.commits(4)
    member.commits(5, generation_id_or_member_epoch=2)
    member.commits(5, generation_id_or_member_epoch=-1)
    unknown.commits(5, generation_id_or_member_epoch=1, member_id="x")
    member.leaves()
    member.commits(6)
    unknown.commits(7)
    recorder.fetches_offsets({"orders": [0]})


@scenario(
    167,
    since=STATIC,
    listed=[Listed(51, "L receives OffsetCommit: …error_code=82…", "L receives OffsetCommit: …error_code=25…")],
)
def fenced_member_commits(recorder: Recorder) -> None:
    leader, follower = pair(recorder)
    leader.commits(3, "orders", "payments", member_id=follower.member_id)
    leader.commits(3, group_instance_id="nobody")
    leader.commits(3, member_id="", generation_id_or_member_epoch=-1)
    leader.commits(4)
    recorder.fetches_offsets({"orders": [0]})


@scenario(164)
def commit_before_the_assignment(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    joined(recorder, member)
    member.commits(3)
    member.commits(3, generation_id_or_member_epoch=9)
    member.commits(3, generation_id_or_member_epoch=-1, member_id="")
    recorder.fetches_offsets({"orders": [0]})


@scenario(166)
def commit_while_the_group_rebalances(recorder: Recorder) -> None:
    leader, follower = Member(recorder, "A"), Member(recorder, "B")
    stable(recorder, leader, follower)
    follower.sends_join(protocols=CHANGED)
    follower.is_pending()
    leader.commits(3)
    leader.commits(4, generation_id_or_member_epoch=9)
    recorder.fetches_offsets({"orders": [0]})


@scenario(
    169,
    listed=[
        Listed(
            12,
            "A receives OffsetCommit: …no-such-topic…orders…payments…",
            "A receives OffsetCommit: …orders…no-such-topic…payments…",
        )
    ],
)
def commit_for_an_unknown_topic_among_others(recorder: Recorder) -> None:
    consumer = Member(recorder, "A")
    consumer.commits(3, "orders", "no-such-topic", "payments")
    consumer.commits(3, "no-such-topic")
    recorder.fetches_offsets(EVERYWHERE)


@scenario(176, 181)
def offsets_of_an_unknown_group(recorder: Recorder) -> None:
    recorder.fetches_offsets(EVERYWHERE)
    recorder.fetches_offsets({})
    if recorder.row.number > 0:
        recorder.fetches_offsets(None)
    recorder.describes()


@scenario(176)
def offsets_of_unknown_topics(recorder: Recorder) -> None:
    Member(recorder, "A").commits(3)
    recorder.fetches_offsets(NOWHERE)
    recorder.fetches_offsets({"orders": [0, 0]})


@scenario(197, 200, 202)
def offsets_are_deleted(recorder: Recorder) -> None:
    recorder.deletes_offsets({"orders": [0]})
    Member(recorder, "A").commits(3, "orders", "payments")
    recorder.deletes_offsets({"orders": [0, 1]})
    recorder.fetches_offsets(EVERYWHERE)
    recorder.deletes_offsets({"no-such-topic": [0], "payments": [9]})
    recorder.deletes_offsets({}, group="")


@scenario(198)
def offsets_of_a_living_group_of_another_type_are_deleted(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    member.joins(protocol_type="My Protocol")
    named = {"protocol_type": "My Protocol"} if recorder.row.number >= NAMES_PROTOCOL else {}
    member.syncs({member: b"\x01"}, **named)
    member.commits(3)
    recorder.deletes_offsets({"orders": [0]})


@scenario(201)
def offsets_are_deleted_while_the_subscription_is_unreadable(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    stable(recorder, member)
    member.commits(3, "orders", "payments")
    recorder.deletes_offsets({"orders": [0], "payments": [0]})
    recorder.fetches_offsets(EVERYWHERE)


@scenario(201)
def offsets_of_subscribed_topics_are_deleted(recorder: Recorder) -> None:
    subscribed = encode_subscription(Subscription(["orders"]))
    member = Member(recorder, "A", protocols=(("range", subscribed),))
    stable(recorder, member)
    member.commits(3, "orders", "payments")
    recorder.deletes_offsets({"orders": [0], "payments": [0]})
    recorder.fetches_offsets(EVERYWHERE)


@scenario(169)
def commit_for_a_partition_that_is_not_there(recorder: Recorder) -> None:
    consumer = Member(recorder, "A")
    consumer.commits(3, partition=99)
    consumer.commits(3, partition=-1)
    recorder.fetches_offsets({"orders": [99]})
    recorder.describes()


@scenario(178, since=7)
def offsets_of_several_groups(recorder: Recorder) -> None:
    Member(recorder, "A").commits(3)
    known = OffsetFetchRequestGroup(recorder.group, topics=None)
    unknown = OffsetFetchRequestGroup(f"{recorder.group}-other", topics=None)
    recorder.requests(OffsetFetchRequest(groups=[unknown, known]))
    recorder.requests(OffsetFetchRequest(groups=[known], require_stable=True))
    recorder.requests(OffsetFetchRequest(groups=[]))


@scenario(178, since=8)
def member_fetches_its_offsets(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    stable(recorder, member)
    member.commits(3)
    for member_id, epoch in ((member.member_id, 1), (member.member_id, 9), ("x", 1), (None, -1), ("", 0)):
        recorder.requests(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(recorder.group, member_id, epoch, None)]))
