"""JoinGroup: validation, and the member ids that new members get (KIP-394)."""

from __future__ import annotations

from tests.conformance.member import BOTH, RANGE, ROUND_ROBIN, Member, joined, stable
from tests.conformance.recorder import Recorder
from tests.conformance.scenario import Listed, scenario
from tests.conformance.versions import HANDS_OUT_IDS, STATIC

UNSUPPORTED = (("nothing-in-common", b"\x09"),)


@scenario(11, 12, 21)
def session_time_out_outside_the_limits(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    for session_ms in (99, 0, -1, 1_800_001):
        member.sends_join_request(session_timeout_ms=session_ms)
        member.receives()
    recorder.describes()


@scenario(14, 21)
def unknown_id_in_an_unknown_group(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    member.joins(member_id="x")
    recorder.describes()


@scenario(14, since=STATIC)
def unknown_id_with_an_instance_id_in_an_unknown_group(recorder: Recorder) -> None:
    member = Member(recorder, "A", "I")
    member.joins(member_id="x")
    recorder.describes()


@scenario()
def empty_group_id(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    member.sends_join_request(group_id="")
    member.receives()
    member.syncs(group_id="")
    member.beats(group_id="")


NO_GROUP_LEFT = Listed(28, "…group_state='Empty', protocol_type='', …", "…group_state='Dead', protocol_type='', …")


@scenario(16, 17, 21, listed=[NO_GROUP_LEFT])
def no_protocols_in_a_new_group(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    for wrong in ({"protocol_type": ""}, {"protocols": ()}, {"protocol_type": "", "protocols": ()}):
        member.sends_join_request(**wrong)
        member.receives()
    recorder.describes()


@scenario(16, since=STATIC, listed=[NO_GROUP_LEFT])
def static_member_without_a_protocol_type(recorder: Recorder) -> None:
    member = Member(recorder, "A", "I")
    member.joins(protocol_type="")
    member.joins(protocols=())
    recorder.describes()


@scenario(19, 47)
def newcomer_with_nothing_in_common(recorder: Recorder) -> None:
    first = Member(recorder, "A", protocols=RANGE)
    second = Member(recorder, "B", protocols=ROUND_ROBIN)
    first.sends_join()
    recorder.awaits_members(1)
    second.sends_join_request()
    second.receives()
    first.is_pending()
    first.receives()
    first.syncs({first: b"\x01"})
    second.sends_join_request()
    second.receives()
    second.sends_join_request(protocol_type="connect", protocols=RANGE)
    second.receives()
    recorder.describes()


@scenario(22, 25)
def fifth_member_of_a_full_group(recorder: Recorder) -> None:
    members = [Member(recorder, name, protocols=((name, b"\x01"), *RANGE)) for name in "ABCD"]
    fifth = Member(recorder, "E")
    joined(recorder, *members)
    fifth.joins()
    fifth.beats()
    recorder.describes()


@scenario(24, since=STATIC)
def fifth_static_member_of_a_full_group(recorder: Recorder) -> None:
    members = [Member(recorder, name, name) for name in "ABCD"]
    fifth = Member(recorder, "E", "E")
    for count, member in enumerate(members, start=1):
        member.sends_join()
        recorder.awaits_members(count)
    fifth.joins()
    for member in members:
        member.receives()
    recorder.describes()


@scenario(28, until=0)
def first_version_takes_the_session_for_the_rebalance_time_out(recorder: Recorder) -> None:
    first = Member(recorder, "A", session_ms=400)
    stable(recorder, first)
    second = Member(recorder, "B")
    second.sends_join(session_timeout_ms=1000)
    second.is_pending()
    first.beats()
    second.receives()


@scenario(29, 31, 47, since=HANDS_OUT_IDS)
def newcomer_is_sent_away_with_its_id(recorder: Recorder) -> None:
    member = Member(recorder, "A", client_id="my client/id")
    member.takes_id()
    recorder.describes()
    recorder.lists()
    member.sends_join_request()
    member.is_pending()
    recorder.describes()
    member.receives()
    recorder.describes()


@scenario(29, until=HANDS_OUT_IDS - 1)
def newcomer_of_an_old_version_joins_at_once(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    member.sends_join_request()
    member.is_pending()
    member.receives()


@scenario(33, since=HANDS_OUT_IDS)
def newcomer_who_never_returns(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    stable(recorder, member)
    other = Member(recorder, "B", session_ms=300)
    other.takes_id()
    recorder.describes()
    recorder.waits(0.6)
    member.beats()
    other.sends_join_request()
    other.receives()
    recorder.describes()


@scenario(35, since=HANDS_OUT_IDS)
def join_phase_does_not_wait_for_an_expired_newcomer(recorder: Recorder) -> None:
    member = Member(recorder, "A", rebalance_ms=1500)
    stable(recorder, member)
    other = Member(recorder, "B", session_ms=400)
    other.takes_id()
    member.sends_join()
    member.is_pending()
    recorder.describes()
    member.receives()
    recorder.describes()


@scenario(since=HANDS_OUT_IDS)
def first_join_phase_does_not_wait_for_an_unused_id(recorder: Recorder) -> None:
    """Unlike those that follow it: the initial delay ends it, even if members are still to come."""
    member, newcomer = Member(recorder, "A"), Member(recorder, "B")
    newcomer.takes_id()
    member.joins()
    recorder.describes()
    newcomer.sends_join_request()
    newcomer.is_pending()
    member.joins()
    newcomer.receives()


@scenario(37, since=HANDS_OUT_IDS)
def id_that_has_not_joined_is_unknown_elsewhere(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    member.takes_id()
    member.beats(generation_id=0)
    member.beats(generation_id=-1)
    member.syncs(generation_id=0)
    member.commits(generation_id_or_member_epoch=0)
    member.commits(generation_id_or_member_epoch=-1)
    recorder.describes()


@scenario(38, since=STATIC)
def newcomers_id_with_an_instance_id(recorder: Recorder) -> None:
    member = Member(recorder, "A")
    member.takes_id()
    member.sends_join_request(group_instance_id="I")
    member.receives()
    recorder.describes()


@scenario(39, since=HANDS_OUT_IDS)
def newcomers_id_with_nothing_in_common_may_try_again(recorder: Recorder) -> None:
    first = Member(recorder, "A", protocols=RANGE)
    stable(recorder, first)
    second = Member(recorder, "B", protocols=BOTH)
    second.takes_id()
    second.sends_join_request(protocols=UNSUPPORTED)
    second.receives()
    second.sends_join_request()
    second.is_pending()
    first.beats()
    first.sends_join()
    first.receives()
    second.receives()
