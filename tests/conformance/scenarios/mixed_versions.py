"""Groups whose members are clients of different ages, as during an upgrade: each is answered in its own version.

The row of the run is that of the younger ones; the older member's is named in the run.
"""

from __future__ import annotations

from holdfast.wire.apis.leave_group import MemberIdentity
from tests.conformance.member import BOTH, RANGE, ROUND_ROBIN, Member, joined, pair, stable
from tests.conformance.recorder import Recorder
from tests.conformance.scenario import scenario
from tests.conformance.versions import HANDS_OUT_IDS, NAMES_PROTOCOL, NEWEST, ROWS, STATIC

LAST_WITHOUT_INSTANCES = STATIC - 1
LAST_WITHOUT_SKIP = NEWEST - 1


@scenario(63, since=STATIC)
def leader_of_an_old_version_with_a_static_follower(recorder: Recorder) -> None:
    """The list that the leader gets has no room for instance ids."""
    leader = Member(recorder, "A", row=ROWS[LAST_WITHOUT_INSTANCES])
    follower = Member(recorder, "B", "I")
    stable(recorder, leader, follower)
    recorder.describes()


@scenario(63)
def leaders_of_each_old_version_with_younger_followers(recorder: Recorder) -> None:
    """The row is the leader's; the followers are of the newest."""
    leader = Member(recorder, "A", protocols=BOTH)
    static = Member(recorder, "B", "I", protocols=BOTH, row=ROWS[NEWEST])
    dynamic = Member(recorder, "C", protocols=RANGE, row=ROWS[NEWEST])
    stable(recorder, leader, static, dynamic)
    for member in (leader, static, dynamic):
        member.beats()
        member.commits(3)
    recorder.describes()


@scenario()
def followers_of_each_old_version_with_a_younger_leader(recorder: Recorder) -> None:
    leader = Member(recorder, "A", "I", protocols=BOTH, row=ROWS[NEWEST])
    follower = Member(recorder, "B", protocols=BOTH)
    stable(recorder, leader, follower)
    follower.sends_join(protocols=ROUND_ROBIN)
    follower.is_pending()
    leader.beats()
    leader.joins()
    follower.receives()
    leader.syncs({leader: b"\x03", follower: b"\x04"})
    follower.syncs()
    follower.leaves()
    leader.beats()
    recorder.describes()


@scenario(since=STATIC)
def static_follower_restarts_under_a_leader_of_an_old_version(recorder: Recorder) -> None:
    leader = Member(recorder, "A", row=ROWS[2])
    follower = Member(recorder, "B", "I")
    stable(recorder, leader, follower)
    again = Member(recorder, "B2", "I")
    again.joins()
    again.syncs()
    leader.beats()
    follower.beats()
    leader.sends_join()
    leader.is_pending()
    again.beats()
    again.joins()
    leader.receives()


@scenario(97, since=STATIC, until=LAST_WITHOUT_SKIP)
def static_leader_comes_back_upgraded(recorder: Recorder) -> None:
    """From v9 on it is informed that it leads, and that it need not assign."""
    _, follower = pair(recorder)
    again = Member(recorder, "L2", "L", protocols=BOTH, row=ROWS[NEWEST])
    again.joins()
    again.syncs()
    follower.beats()
    recorder.describes()


@scenario(97, since=STATIC, until=LAST_WITHOUT_SKIP)
def static_leader_comes_back_downgraded(recorder: Recorder) -> None:
    """Below v9 it gets the id that it had: taking itself for the leader, it would assign for nothing."""
    leader = Member(recorder, "L", "L", row=ROWS[NEWEST])
    follower = Member(recorder, "F", "F", row=ROWS[NEWEST])
    stable(recorder, leader, follower)
    again = Member(recorder, "L2", "L")
    again.joins()
    again.syncs()
    follower.beats()
    follower.syncs()
    recorder.describes()


@scenario(since=STATIC)
def static_member_comes_back_from_before_instances(recorder: Recorder) -> None:
    """A client too old for instance ids is a newcomer; the membership of its instance stays."""
    static = Member(recorder, "A", "I")
    stable(recorder, static)
    again = Member(recorder, "A2", row=ROWS[LAST_WITHOUT_INSTANCES])
    again.sends_join()
    again.is_pending()
    static.beats()
    static.joins()
    again.receives()
    recorder.describes()


@scenario(since=NAMES_PROTOCOL)
def sync_without_a_protocol_beside_one_that_names_it(recorder: Recorder) -> None:
    old = Member(recorder, "A", protocols=BOTH, row=ROWS[NAMES_PROTOCOL - 1])
    young = Member(recorder, "B", protocols=BOTH)
    joined(recorder, old, young)
    young.syncs(protocol_name="roundrobin")
    young.sends_sync()
    young.is_pending()
    old.syncs({old: b"\x01", young: b"\x02"})
    young.receives()


@scenario(since=HANDS_OUT_IDS)
def newcomers_with_and_without_the_detour(recorder: Recorder) -> None:
    """An id that was handed out to a younger client holds up the join phase of the older, until it is used."""
    old = Member(recorder, "A", row=ROWS[HANDS_OUT_IDS - 1])
    young = Member(recorder, "B")
    stable(recorder, old)
    young.takes_id()
    old.sends_join()
    old.is_pending()
    young.sends_join_request()
    old.receives()
    young.receives()
    recorder.describes()


@scenario(since=STATIC)
def old_client_takes_a_static_member_out(recorder: Recorder) -> None:
    """Before row 5 LeaveGroup names a member id only, and that suffices."""
    leader, follower = pair(recorder)
    old = Member(recorder, "X", row=ROWS[LAST_WITHOUT_INSTANCES])
    old.leaves(member_id="nobody")
    old.leaves(member_id=follower.member_id)
    leader.beats()
    leader.leaves(MemberIdentity("", "F"))
    recorder.describes()


@scenario()
def id_of_one_version_is_used_in_another(recorder: Recorder) -> None:
    """The same member speaks, from request to request, as clients of two ages."""
    member = Member(recorder, "A", protocols=BOTH)
    stable(recorder, member)
    younger = Member(recorder, "A", protocols=BOTH, row=ROWS[NEWEST])
    younger.member_id, younger.generation, younger.protocol = member.member_id, member.generation, "range"
    younger.beats()
    younger.commits(3)
    younger.syncs()
    younger.joins()
    younger.syncs({younger: b"\x07"})
    member.generation = younger.generation
    member.beats()
    member.syncs()
    recorder.describes()
