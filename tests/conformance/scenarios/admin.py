"""6.A and 6.N: find, describe and list groups."""

from __future__ import annotations

from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from tests.conformance.member import Member, joined, pair, stable
from tests.conformance.scenario import Listed, scenario
from tests.conformance.scene import Scene
from tests.conformance.versions import STATIC

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "stable", "nonsense")


@scenario(4)
def coordinator_of_a_group(scene: Scene) -> None:
    scene.finds_coordinator()
    scene.finds_coordinator("")


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
def coordinator_of_something_unknown(scene: Scene) -> None:
    scene.finds_coordinator(key_type=7)


@scenario(186)
def unknown_group_is_described(scene: Scene) -> None:
    scene.describes()
    scene.describes("")
    scene.lists()


@scenario(189, 62)
def group_is_described_in_every_state(scene: Scene) -> None:
    member = Member(scene, "A", client_id="somebody")
    member.sends_join()
    scene.awaits_members(1)
    scene.describes()
    member.hears()
    scene.describes()
    member.syncs({member: b"\x01"})
    scene.describes()
    member.leaves()
    scene.describes()


@scenario(189, since=STATIC)
def static_members_are_described(scene: Scene) -> None:
    pair(scene)
    scene.describes()


@scenario(186, 189, since=3)
def authorized_operations_are_asked_for(scene: Scene) -> None:
    scene.asks(DescribeGroupsRequest([scene.group], include_authorized_operations=True))
    stable(scene, Member(scene, "A"))
    scene.asks(DescribeGroupsRequest([scene.group], include_authorized_operations=True))


@scenario(186)
def several_groups_are_described(scene: Scene) -> None:
    stable(scene, Member(scene, "A"))
    scene.asks(DescribeGroupsRequest([f"{scene.group}-other", scene.group]))
    scene.asks(DescribeGroupsRequest([]))


@scenario(190, since=6)
def list_is_filtered_by_state(scene: Scene) -> None:
    member = Member(scene, "A")
    joined(scene, member)
    for state in STATES:
        scene.lists([state])
    member.syncs({member: b"\x01"})
    for state in STATES:
        scene.lists([state])
    scene.lists(["Empty", "Stable"])


@scenario(190)
def list_without_a_filter(scene: Scene) -> None:
    member = Member(scene, "A")
    stable(scene, member)
    scene.lists()
    member.leaves()
    scene.lists()


@scenario(192, since=8)
def list_is_filtered_by_type(scene: Scene) -> None:
    stable(scene, Member(scene, "A"))
    for kind in ("Classic", "classic", "consumer", "Consumer", "share", "nonsense"):
        scene.lists(types=[kind])
    scene.lists(["Stable"], ["classic"])
    scene.lists(["Empty"], ["classic"])
