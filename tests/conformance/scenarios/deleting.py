"""The end of groups, 6.N. These plays come last, and count generations from the first they hear.

Difference 22: in Holdfast a new group starts above every deleted one, so that whoever joins after a deletion hears
another number than in Kafka.
"""

from __future__ import annotations

from tests.conformance.member import Member, stable
from tests.conformance.scenario import Listed, scenario
from tests.conformance.scene import Scene
from tests.conformance.versions import HANDS_OUT_IDS


@scenario(193, 195, after_deletions=True)
def groups_are_deleted(scene: Scene) -> None:
    scene.deletes()
    member = Member(scene, "A")
    stable(scene, member)
    scene.deletes()
    member.leaves()
    member.commits(3, generation_id_or_member_epoch=-1, member_id="")
    scene.deletes()
    scene.describes()
    scene.fetches_offsets({"orders": [0]})
    scene.deletes()


@scenario(193, after_deletions=True)
def group_is_deleted_during_its_join_phase(scene: Scene) -> None:
    member = Member(scene, "A")
    member.sends_join()
    scene.awaits_members(1)
    scene.deletes()
    member.hears()
    scene.deletes()


@scenario(193, since=HANDS_OUT_IDS, after_deletions=True)
def group_of_a_newcomer_is_deleted(scene: Scene) -> None:
    member = Member(scene, "A")
    member.takes_id()
    scene.deletes()
    scene.describes()
    member.says_join()
    member.hears()


@scenario(
    after_deletions=True,
    listed=[
        Listed(22, "B hears JoinGroup: …generation_id=first+0, …", "B hears JoinGroup: …generation_id=first+…, …"),
    ],
)
def group_of_a_deleted_groups_name(scene: Scene) -> None:
    member = Member(scene, "A")
    stable(scene, member)
    member.leaves()
    scene.deletes()
    stable(scene, Member(scene, "B"))


@scenario(195, after_deletions=True)
def group_is_deleted_twice_in_one_request(scene: Scene) -> None:
    Member(scene, "A").commits(3)
    scene.deletes(scene.group, scene.group)
    scene.describes()
