"""Groups of other kinds, on both servers: members of any protocol, workers that share tasks, and the single writer."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Member, SingleWriter, WorkerPool
from holdfast.client.errors import AssignorError, CallbackError, ConfigError, RequestTimedOut
from holdfast.client.member import GroupMember, MemberState
from holdfast.client.single_writer import choose_writer
from holdfast.client.worker_pool import assign_tasks
from tests.client_compat.servers import Server
from tests.support.eventually import eventually

PATIENCE_S = 60


def config(server: Server, group: str, **settings: Any) -> dict[str, Any]:
    quick = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 100}
    return {"bootstrap.servers": server.bootstrap, "group.id": group, **quick} | settings


def numbered(members: Any) -> dict[str, Any]:
    ordered = sorted(members, key=lambda one: str(one.metadata))
    return {one.member_id: {"number": number, "of": len(ordered)} for number, one in enumerate(ordered)}


# -- Member ------------------------------------------------------------------------------------------------------------


def test_members_are_assigned_by_their_user_data(server: Server, group: str) -> None:
    with (
        Member(config(server, group), "shards", {"by-name": {"name": "b"}}, numbered) as second,
        Member(config(server, group), "shards", {"by-name": {"name": "a"}}, numbered) as first,
    ):
        eventually(
            lambda: first.current is not None and first.current.state == {"number": 0, "of": 2}, "a is the first"
        )
        state = second.wait_for_assignment(PATIENCE_S)
        assert state.state == {"number": 1, "of": 2}
        assert state.generation == first.wait_for_assignment(PATIENCE_S).generation


def test_bytes_go_through_as_they_are(server: Server, group: str) -> None:
    def assign(members: Any) -> dict[str, bytes]:
        return {one.member_id: b"\x00\xff" + one.metadata for one in members}

    with Member(config(server, group), "raw", {"p": b"\x01\x02"}, assign, codec="bytes") as member:
        assert member.wait_for_assignment(PATIENCE_S).state == b"\x00\xff\x01\x02"


def test_a_rejoin_carries_what_is_true_now(server: Server, group: str) -> None:
    said = {"p": {"name": "before"}}
    states: list[MemberState] = []
    revoked: list[bool] = []

    def assign(members: Any) -> dict[str, Any]:
        return {one.member_id: one.metadata for one in members}

    member = Member(
        config(server, group), "echo", lambda: said, assign, on_assignment=states.append, on_revoked=revoked.append
    )
    with member:
        first = member.wait_for_assignment(PATIENCE_S)
        said["p"] = {"name": "after"}
        member.rejoin("renamed")
        second = member.wait_for_assignment(PATIENCE_S, newer_than=first.generation)

    assert (first.state, second.state) == ({"name": "before"}, {"name": "after"})
    assert [one.state for one in states] == [first.state, second.state]
    assert revoked == [False, False], "before the rejoin, and when it was closed"


def test_a_static_member_of_any_kind_keeps_its_assignment(server: Server, group: str) -> None:
    settings = config(server, group, **{"group.instance.id": "instance-1"})
    with Member(settings, "shards", {"p": {}}, numbered) as before:
        first = before.wait_for_assignment(PATIENCE_S)
    with Member(settings, "shards", {"p": {}}, numbered) as after:
        second = after.wait_for_assignment(PATIENCE_S)

    assert (first.generation, first.state) == (second.generation, second.state)
    assert first.member_id != second.member_id


def test_an_assign_that_raises_ends_the_member_and_the_next_one_leads(server: Server, group: str) -> None:
    def broken(_members: Any) -> dict[str, Any]:
        raise ZeroDivisionError("on purpose")

    member = Member(config(server, group), "shards", {"p": {}}, broken).start()
    with pytest.raises(AssignorError, match="ZeroDivisionError: on purpose"):
        member.wait_for_assignment(PATIENCE_S)
    member.close()
    with Member(config(server, group), "shards", {"p": {}}, numbered) as good:
        assert good.wait_for_assignment(PATIENCE_S).state == {"number": 0, "of": 1}


def test_a_callback_that_raises_ends_the_member(server: Server, group: str) -> None:
    def broken(_state: MemberState) -> None:
        raise ZeroDivisionError("on purpose")

    before = set(threading.enumerate())
    member = Member(config(server, group), "shards", {"p": {}}, numbered, on_assignment=broken).start()
    with pytest.raises(CallbackError, match="on_assignment raised ZeroDivisionError"):
        eventually(lambda: member.current and None, "never")
    member.close()
    assert set(threading.enumerate()) <= before


def test_a_member_without_a_broker_names_the_address() -> None:
    member = Member({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, "shards", {"p": {}}, numbered).start()
    with pytest.raises(RequestTimedOut, match=r"127\.0\.0\.1:1"):
        member.wait_for_assignment(10)
    member.close(timeout=1)


@pytest.mark.parametrize("protocol_type", ["", "consumer"])
def test_a_protocol_type_that_is_taken_is_refused(protocol_type: str) -> None:
    with pytest.raises(ConfigError, match=r"holdfast\.Consumer"):
        Member({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, protocol_type, {}, numbered)


# -- WorkerPool --------------------------------------------------------------------------------------------------------


class Ledger:
    """Which tasks run, by whom; two at a time is what must never be."""

    def __init__(self) -> None:
        self.running: dict[str, str] = {}
        self.twice: list[str] = []
        self.starts: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def worker(self, name: str) -> Any:
        def run(task: str, stopping: threading.Event) -> None:
            with self._lock:
                if task in self.running:
                    self.twice.append(task)
                self.running[task] = name
                self.starts.append((name, task))
            stopping.wait()
            with self._lock:
                del self.running[task]

        return run

    def count(self, name: str) -> int:
        with self._lock:
            return sum(one == name for one in self.running.values())


def test_workers_divide_tasks_hand_them_over_and_never_run_one_twice(server: Server, group: str) -> None:
    ledger = Ledger()
    tasks = [f"task-{number}" for number in range(7)]
    with WorkerPool(config(server, group), tasks, ledger.worker("a")) as first:
        eventually(lambda: ledger.count("a") == 7, "all seven in one process")
        with WorkerPool(config(server, group), tasks, ledger.worker("b")):
            eventually(lambda: (ledger.count("a"), ledger.count("b")) == (4, 3), "four and three")
            assert len(first.running) == 4
        eventually(lambda: ledger.count("a") == 7, "all seven in one process again")

        first.set_tasks([*tasks, "task-7"])
        eventually(lambda: ledger.count("a") == 8, "the new one too")
    assert ledger.running == {}
    assert ledger.twice == []
    stayed = [task for name, task in ledger.starts if name == "a"]
    assert len(stayed) == 7 + 3 + 1, "what stayed was never restarted"


def test_a_task_that_fails_is_reported_and_the_others_run_on(server: Server, group: str) -> None:
    failed: list[tuple[str, Exception]] = []
    done = threading.Event()

    def run(task: str, stopping: threading.Event) -> None:
        if task == "bad":
            raise ZeroDivisionError("on purpose")
        done.set()
        stopping.wait()

    with WorkerPool(
        config(server, group), ["good", "bad"], run, on_error=lambda *failure: failed.append(failure)
    ) as pool:
        eventually(lambda: failed and done.is_set(), "one failed, one running")
        # It is reported by its own thread, which ends only then.
        eventually(lambda: pool.running == ["good"], "the other runs on")
    assert [(task, str(error)) for task, error in failed] == [("bad", "on purpose")]


def worker(member_id: str, tasks: list[str], running: list[str]) -> GroupMember:
    return GroupMember(member_id, None, {"tasks": tasks, "running": running})


def test_tasks_are_balanced_with_few_moves_and_none_moves_while_it_runs() -> None:
    tasks = list("abcdefg")
    assigned = assign_tasks([worker("1", tasks, list("abcdefg")), worker("2", tasks, [])])
    assert assigned["1"]["tasks"] == list("abcd")
    assert assigned["2"]["tasks"] == [], "the others are still running where they were"

    assigned = assign_tasks([worker("1", tasks, list("abcd")), worker("2", tasks, [])])
    assert (assigned["1"]["tasks"], assigned["2"]["tasks"]) == (list("abcd"), list("efg"))


def test_a_worker_with_unreadable_metadata_does_not_stop_the_others() -> None:
    assigned = assign_tasks(
        [worker("1", ["a"], []), GroupMember("2", None, None), GroupMember("3", None, {"tasks": 7})]
    )
    assert sorted(task for one in assigned.values() for task in one["tasks"]) == ["a"]


# -- SingleWriter ------------------------------------------------------------------------------------------------------


class Store:
    """What a writer writes to: it refuses a token lower than the highest it has seen."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def accepted(self) -> list[tuple[str, int]]:
        return self._written("accepted")

    def refused(self) -> list[tuple[str, int]]:
        return self._written("refused")

    def suspend(self, writer: subprocess.Popen[str]) -> None:
        """Between two writes: within one it would keep the lock, and any member that takes over could not write."""
        with self.path.open("a") as store:
            fcntl.flock(store, fcntl.LOCK_EX)
            os.kill(writer.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, writer.pid, os.WSTOPPED)

    def _written(self, verdict: str) -> list[tuple[str, int]]:
        lines = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        whole = (line.split() for line in lines if line.endswith("\n"))
        return [(name, int(token)) for name, token, said in whole if said == verdict]


WRITER = """
import fcntl, json, sys, time
from holdfast import SingleWriter

name, path, config = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

def write(token):
    with open(path, "a+") as store:
        fcntl.flock(store, fcntl.LOCK_EX)
        store.seek(0)
        seen = [int(line.split()[1]) for line in store if line.endswith("accepted\\n")]
        verdict = "accepted" if token >= max(seen, default=0) else "refused"
        store.write(f"{name} {token} {verdict}\\n")

with SingleWriter(config) as writer:
    print("started", flush=True)
    token = writer.wait_until_active()
    while True:
        write(token)          # with the token it has, without asking: as a thread deep in its work would
        time.sleep(0.02)
        token = writer.token or token
"""


@contextmanager
def writer_process(name: str, store: Store, settings: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WRITER, name, str(store.path), json.dumps(settings)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_paused_and_replaced_writer_is_refused_by_a_store_that_checks_the_token(
    server: Server, group: str, tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    settings = config(server, group, **{"session.timeout.ms": 2_000})
    with writer_process("first", store, settings) as first:
        eventually(lambda: len(store.accepted()) > 3, "the first writes")
        with writer_process("second", store, settings) as second:
            assert second.stdout is not None and second.stdout.readline() == "started\n"
            store.suspend(first)
            eventually(lambda: "second" in dict(store.accepted()), "the second takes over")
            os.kill(first.pid, signal.SIGCONT)
            eventually(lambda: any(name == "first" for name, _ in store.refused()), "the first is refused")

            tokens = [token for _, token in store.accepted()]
            assert tokens == sorted(tokens)
            assert dict(store.accepted())["second"] > store.refused()[0][1]


def test_the_writer_stays_when_others_come_and_its_token_with_it(server: Server, group: str) -> None:
    active: list[int] = []
    with SingleWriter(config(server, group), on_active=active.append) as first:
        token = first.wait_until_active(PATIENCE_S)
        with SingleWriter(config(server, group)) as second:
            eventually(lambda: second._member.current is not None, "the second is in")
            assert (first.token, second.token) == (token, None)
            with pytest.raises(RequestTimedOut, match="another process"):
                second.wait_until_active(0.2)
            first.close()
            assert second.wait_until_active(PATIENCE_S) > token
    assert active == [token]


def test_a_static_writer_is_refused() -> None:
    with pytest.raises(ConfigError, match="token would not move"):
        SingleWriter({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "group.instance.id": "i"})


def test_the_writer_with_the_newer_token_is_chosen() -> None:
    said = [GroupMember("a", None, {"token": 3}), GroupMember("b", None, {"token": 5}), GroupMember("c", None, None)]
    assert choose_writer(said) == {"a": {"write": False}, "b": {"write": True}, "c": {"write": False}}
