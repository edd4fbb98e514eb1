"""The checks of the fuzzer trip: each is shown something that it must not let through."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.groups.service import PendingReply
from holdfast.coordinator.classic import commands, leave_group, session
from holdfast.coordinator.classic.member import Protocol
from holdfast.coordinator.coordinator import GroupCoordinator
from holdfast.coordinator.runtime.effects import Append, Effects
from holdfast.wire.apis.heartbeat import HeartbeatResponse
from tests.fuzz import fuzzed_broker, packed_corpus, seeds
from tests.fuzz.coordinator_runs import Act, CoordinatorRun, Step, pack, parse
from tests.fuzz.decoding import Kind, run
from tests.fuzz.minimizing import minimised
from tests.fuzz.stall_and_leak_checks import Leak, Pace, Stall, check_growth, run_in_pace
from tests.fuzz.targets import COORDINATOR, DECODING

PACE = Pace(seconds=0.005, seconds_per_byte=1e-6)
A_PAIR = seeds.for_coordinator_runs()[0]
STATIC_PAIR = seeds.for_coordinator_runs()[1]
A_COMMIT = pack([next(parse(seeds.for_coordinator_runs()[4]))])


def spin(_data: bytes) -> None:
    for _ in range(2_000_000):
        pass


# -- pace --------------------------------------------------------------------------------------------------------------


def test_an_input_that_burns_time_is_a_stall() -> None:
    with pytest.raises(Stall, match="of CPU time; 5 ms are allowed"):
        run_in_pace(spin, b"x", PACE)


def test_the_same_time_is_no_stall_for_an_input_of_many_bytes() -> None:
    run_in_pace(spin, bytes(10_000_000), PACE)


def test_one_slow_run_of_several_is_no_stall() -> None:
    runs: list[bytes] = []

    def slow_at_first(data: bytes) -> None:
        runs.append(data)
        if len(runs) == 1:
            spin(data)

    run_in_pace(slow_at_first, b"x", PACE)

    assert len(runs) == 2


def test_time_that_others_take_is_no_stall() -> None:
    run_in_pace(lambda _data: asyncio.run(asyncio.sleep(0.1)), b"x", Pace(0.05, 0))


# -- growth ------------------------------------------------------------------------------------------------------------


def test_memory_that_grows_with_every_run_is_a_leak() -> None:
    kept: list[bytes] = []

    with pytest.raises(Leak, match="memory grows by"):
        check_growth(lambda: kept.append(bytes(200)))


def test_a_cache_that_fills_is_no_leak() -> None:
    kept: dict[int, bytes] = {}

    check_growth(lambda: kept.update({len(kept) % 3: bytes(200)}))


def test_a_coordinator_that_keeps_lost_members_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    COORDINATOR.check_growth(STATIC_PAIR)
    remembered: list[Any] = []
    refresh = session.refresh

    def remember(ctx: Any, group: Any, member: Any, now_ms: int) -> None:
        remembered.append(member)
        refresh(ctx, group, member, now_ms)

    monkeypatch.setattr(session, "refresh", remember)

    with pytest.raises(Leak, match="memory grows by"):
        COORDINATOR.check_growth(STATIC_PAIR)


# -- what is left at the end -------------------------------------------------------------------------------------------


def test_a_member_that_is_never_removed_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leave_group, "session_expired", lambda *_: None)

    with pytest.raises(AssertionError, match=r"immortal|still has members"):
        CoordinatorRun().execute(A_PAIR)


def test_an_id_that_is_never_forgotten_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    a_join = pack([next(parse(A_PAIR))])
    CoordinatorRun().execute(a_join)
    monkeypatch.setattr(commands.Join, "of", _with_endless_session)

    with pytest.raises(Leak, match="ids that were handed out"):
        CoordinatorRun().execute(a_join)


def _with_endless_session(request: Any, api_version: int, client: Any, handle: object, fresh_id: str) -> Any:
    request.session_timeout_ms = 1 << 60
    return commands.Join(request, api_version, client, handle, fresh_id, (Protocol("range", b""),))


def test_a_request_that_is_never_answered_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PendingReply, "complete", lambda _handle, _response: None)

    with pytest.raises(Leak, match="parked for ever"):
        CoordinatorRun().execute(A_PAIR)


def test_a_group_that_is_never_forgotten_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    append_done = GroupCoordinator.append_done

    def haunted(self: GroupCoordinator, append: Append, now_ms: int) -> Effects:
        group = self._groups[append.group.id]
        effects = append_done(self, append, now_ms)
        self._groups[append.group.id] = group
        return effects

    monkeypatch.setattr(GroupCoordinator, "append_done", haunted)

    with pytest.raises(Leak, match="groups left"):
        CoordinatorRun().execute(A_PAIR)


def test_a_record_that_stays_in_the_group_log_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    append = fuzzed_broker.MemoryGroupLog.append

    def without_tombstones(self: Any, group_id: str, records: Any, now_ms: int) -> Any:
        return append(self, group_id, [(key, value) for key, value in records if value is not None], now_ms)

    monkeypatch.setattr(fuzzed_broker.MemoryGroupLog, "append", without_tombstones)

    with pytest.raises(Leak, match="records in the group log left"):
        CoordinatorRun().execute(A_COMMIT)


# -- crashes -----------------------------------------------------------------------------------------------------------


def test_an_error_that_is_no_wire_error_comes_out_of_a_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = bytes([Kind.BATCH]) + bytes(61)
    run(batch)

    def broken(*_args: Any, **_options: Any) -> None:
        raise KeyError("broken")

    monkeypatch.setattr("tests.fuzz.decoding.decode_batch", broken)

    with pytest.raises(KeyError, match="broken"):
        DECODING.check(batch)


def test_an_error_in_a_handler_is_a_finding_although_the_connection_survives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_args: Any) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(GroupCoordinator, "answer_heartbeat", broken)

    with pytest.raises(KeyError, match="broken"):
        CoordinatorRun().execute(A_PAIR)


def test_a_reply_that_cannot_be_written_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwritable(self: GroupCoordinator, _request: Any, _client: Any, handle: object, now_ms: int) -> Any:
        self._ctx.reply(handle, HeartbeatResponse(error_code=1 << 20))
        return self._drain(now_ms)

    monkeypatch.setattr(GroupCoordinator, "answer_heartbeat", lambda *_: None)
    monkeypatch.setattr(GroupCoordinator, "heartbeat", unwritable)

    with pytest.raises(AssertionError, match="a reply of Heartbeat v4 cannot be written"):
        CoordinatorRun().execute(A_PAIR)


def test_a_malformed_request_only_ends_its_connection() -> None:
    cut_short = Step(Act.REQUEST, 0, next(parse(A_PAIR)).payload[:20])
    CoordinatorRun().execute(pack([cut_short, cut_short, *parse(A_PAIR)]))


# -- the corpus --------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_corpus, "CORPUS", tmp_path)
    inputs = {packed_corpus.digest_name(b"\x00\xff"): b"\x00\xff", "the-one-that-broke-it": b""}

    packed_corpus.write("decoding", inputs)

    assert packed_corpus.read("decoding") == inputs
    assert [name for name, data in inputs.items() if packed_corpus.is_finding(name, data)] == ["the-one-that-broke-it"]


def test_minimising_drops_what_reaches_nothing_new() -> None:
    one, another = bytes([Kind.ASSIGNMENT]) + bytes(2), bytes([Kind.COMPRESSED, 1, 2])
    inputs = {"one": one, "longer": one + b"\x00", "another": another}

    assert set(minimised(run, inputs)) == {"one", "another"}
