"""Find, describe and list groups."""

from __future__ import annotations

from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from tests.conformance.member import Member, joined, pair, stable
from tests.conformance.recorder import Recorder
from tests.conformance.scenario import Listed, scenario
from tests.conformance.versions import STATIC

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "stable", "nonsense")


@scenario(4)
def coordinator_of_a_group(recorder: Recorder) -> None:
    recorder.finds_coordinator()
    recorder.finds_coordinator("")


@scenario(
    8,
    since=1,
    listed=[
        Listed(
            12,
            "…error_code=42, error_message='This most likely…",
            "…error_code=42, error_message='coordinators of type 7…",
        )
    ],
)
def coordinator_of_something_unknown(recorder: Recorder) -> None:
    recorder.finds_coordinator(key_type=7)


@scenario(186)
def unknown_group_is_described(recorder: Recorder) -> None:
    recorder.describes()
    recorder.describes("")
    recorder.lists()


@scenario(189, 62)
def group_is_described_in_every_state(recorder: Recorder) -> None:
    member = Member(recorder, "A", client_id="somebody")
    member.sends_join()
    recorder.awaits_members(1)
    recorder.describes()
    member.receives()
    recorder.describes()
    member.syncs({member: b"\x01"})
    recorder.describes()
    member.leaves()
    recorder.describes()


@scenario(189, since=STATIC)
def static_members_are_described(recorder: Recorder) -> None:
    pair(recorder)
    recorder.describes()


@scenario(186, 189, since=3)
def authorized_operations_are_asked_for(recorder: Recorder) -> None:
    recorder.requests(DescribeGroupsRequest([recorder.group], include_authorized_operations=True))
    stable(recorder, Member(recorder, "A"))
    recorder.requests(DescribeGroupsRequest([recorder.group], include_authorized_operations=True))


@scenario(186)
def several_groups_are_described(recorder: Recorder) -> None:
    stable(recorder, Member(recorder, "A"))
    recorder.requests(DescribeGroupsRequest([f"{recorder.group}-other", recorder.group]))
    recorder.requests(DescribeGroupsRequest([]))


@scenario(190, since=6)
def list_is_filtered_by_state(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    joined(recorder, member)
    for state in STATES:
        recorder.lists([state])
    member.syncs({member: b"\x01"})
    for state in STATES:
        recorder.lists([state])
    recorder.lists(["Empty", "Stable"])


@scenario(190)
def list_without_a_filter(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    stable(recorder, member)
    recorder.lists()
    member.leaves()
    recorder.lists()


@scenario(192, since=8)
def list_is_filtered_by_type(recorder: Recorder) -> None:
    stable(recorder, Member(recorder, "A"))
    for kind in ("Classic", "classic", "consumer", "Consumer", "share", "nonsense"):
        recorder.lists(types=[kind])
    recorder.lists(["Stable"], ["classic"])
    recorder.lists(["Empty"], ["classic"])
