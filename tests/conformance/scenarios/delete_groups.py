"""Deleted groups. These scenarios come last, and count generations from the first one that they receive.

Difference 22: in Holdfast a new group starts above every deleted one, so a member that joins after a deletion gets
another generation than in Kafka.
"""

from __future__ import annotations

from tests.conformance.member import Member, stable
from tests.conformance.recorder import Recorder
from tests.conformance.scenario import Listed, scenario
from tests.conformance.versions import HANDS_OUT_IDS


@scenario(193, 195, after_deletions=True)
def groups_are_deleted(recorder: Recorder) -> None:
    recorder.deletes()
    member = Member(recorder, "A")
    stable(recorder, member)
    recorder.deletes()
    member.leaves()
    member.commits(3, generation_id_or_member_epoch=-1, member_id="")
    recorder.deletes()
    recorder.describes()
    recorder.fetches_offsets({"orders": [0]})
    recorder.deletes()


@scenario(193, after_deletions=True)
def group_is_deleted_during_its_join_phase(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    member.sends_join()
    recorder.awaits_members(1)
    recorder.deletes()
    member.receives()
    recorder.deletes()


@scenario(193, since=HANDS_OUT_IDS, after_deletions=True)
def group_of_a_newcomer_is_deleted(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    member.takes_id()
    recorder.deletes()
    recorder.describes()
    member.sends_join_request()
    member.receives()


@scenario(
    after_deletions=True,
    listed=[
        Listed(
            22, "B receives JoinGroup: …generation_id=first+0, …", "B receives JoinGroup: …generation_id=first+…, …"
        ),
    ],
)
def group_of_a_deleted_groups_name(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    stable(recorder, member)
    member.leaves()
    recorder.deletes()
    stable(recorder, Member(recorder, "B"))


@scenario(195, after_deletions=True)
def group_is_deleted_twice_in_one_request(recorder: Recorder) -> None:
    Member(recorder, "A").commits(3)
    recorder.deletes(recorder.group, recorder.group)
    recorder.describes()
