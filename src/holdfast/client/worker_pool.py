"""`WorkerPool`: processes that share named tasks, as the workers of Kafka Connect do.

    def run(task, stopping):
        while not stopping.is_set():
            copy_some(task)

    with WorkerPool(config, ["orders", "invoices", "returns"], run):
        signal.pause()

Each task runs in one process at a time. A task that stays where it is runs on through a rebalance; one that moves is
first stopped where it was, then started where it goes: its old worker has to rejoin in between. When a worker dies, its
tasks are shared among the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from holdfast.client.member import GroupMember, Member, MemberState

PROTOCOL_TYPE: Final = "holdfast-workers"
PROTOCOL: Final = "tasks-v1"
STOP_TIMEOUT_S: Final = 30.0

Run = Callable[[str, threading.Event], None]

logger = logging.getLogger("holdfast.client")


@dataclass(slots=True)
class _Running:
    thread: threading.Thread
    stopping: threading.Event = field(default_factory=threading.Event)
    late: bool = False
    """It was told to stop and has not."""
    ended: bool = False


class WorkerPool:
    def __init__(
        self,
        config: Mapping[str, Any],
        tasks: Iterable[str],
        run: Run,
        *,
        on_error: Callable[[str, Exception], None] | None = None,
        stop_timeout: float = STOP_TIMEOUT_S,
    ) -> None:
        """`run(task, stopping)` gets a thread of its own and returns soon after `stopping` is set. One that raises is
        reported to `on_error` and runs again when the task is next assigned. One that does not stop within
        `stop_timeout` is not handed over before it does."""
        self._tasks = sorted(set(tasks))
        self._run = run
        self._on_error = on_error
        self._stop_timeout = stop_timeout
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._member = Member(
            config,
            PROTOCOL_TYPE,
            self._say,
            share_tasks,
            on_assignment=self._adopt,
            on_revoked=self._revoked,
        )

    @property
    def running(self) -> list[str]:
        """The tasks that this process runs. Raises what ended its membership."""
        _ = self._member.current
        with self._lock:
            return sorted(task for task, one in self._running.items() if one.thread.is_alive())

    @property
    def assignment_epoch(self) -> int | None:
        """The fencing token of what this process runs now; None while it has nothing, and where the broker has no
        epochs, as Apache Kafka."""
        current = self._member.current
        return None if current is None else current.assignment_epoch

    def set_tasks(self, tasks: Iterable[str]) -> None:
        """Other tasks from now on: the group rebalances. A task is run as long as any member knows it."""
        self._tasks = sorted(set(tasks))
        self._member.rejoin("the tasks have changed")

    def start(self) -> Self:
        self._member.start()
        return self

    def close(self, *, leave: bool = False) -> None:
        """Stops the tasks, then leaves the group (a static worker keeps its seat unless `leave`)."""
        with self._lock:  # whoever starts a task holds it too: none begins after this
            self._closing = True
        self._stop(self._known_running())
        self._member.close(leave=leave)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- in the member's thread ----------------------------------------------------------------------------------------

    def _say(self) -> Mapping[str, Any]:
        return {PROTOCOL: {"tasks": self._tasks, "running": sorted(self._known_running())}}

    def _revoked(self, lost: bool) -> None:
        if lost:  # others may run them by now
            self._stop(self._known_running())

    def _adopt(self, adopted: MemberState) -> None:
        if self._closing:
            return
        given = set((adopted.state or {}).get("tasks", ()))
        stopped = self._stop(self._known_running() - given)
        for task in sorted(given):
            self._start(task)
        if stopped:
            self._member.rejoin("tasks were handed over")

    def _known_running(self) -> set[str]:
        with self._lock:
            return set(self._running)

    def _start(self, task: str) -> None:
        with self._lock:
            held = self._running.get(task)
            if self._closing or (held is not None and not held.ended):
                return
            thread = threading.Thread(target=self._work, args=(task,), name=f"task-{task}", daemon=True)
            self._running[task] = _Running(thread)
            thread.start()

    def _work(self, task: str) -> None:
        with self._lock:
            own = self._running[task]
        try:
            self._run(task, own.stopping)
        except Exception as error:
            logger.exception("task %s failed", task)
            if self._on_error is not None:
                self._on_error(task, error)
        finally:
            with self._lock:
                own.ended = True
                if own.late:
                    del self._running[task]
            if own.late:
                self._member.rejoin("a task has stopped late")

    def _stop(self, tasks: set[str]) -> set[str]:
        """Returns those that have stopped. The others still count as running here, so that nobody else begins them."""
        with self._lock:
            going = {task: self._running[task] for task in tasks if task in self._running}
        for one in going.values():
            one.stopping.set()
        deadline = time.monotonic() + self._stop_timeout
        stopped = set()
        for task, one in going.items():
            if not one.late and one.thread is not threading.current_thread():
                one.thread.join(max(0.0, deadline - time.monotonic()))
            with self._lock:
                if one.ended:
                    stopped.add(task)
                    self._running.pop(task, None)
                elif not one.late:
                    one.late = True
                    logger.error("task %s did not stop within %s s; it runs on", task, self._stop_timeout)
        return stopped


def share_tasks(members: Sequence[GroupMember]) -> dict[str, Any]:
    """Evenly, with as few moves as that allows. A task that somebody still runs is given to nobody else."""
    ordered = sorted(
        members, key=lambda one: (one.group_instance_id is None, one.group_instance_id or "", one.member_id)
    )
    tasks = sorted({task for one in ordered for task in _said(one, "tasks")})
    runner: dict[str, str] = {}
    for one in ordered:
        for task in _said(one, "running"):
            runner.setdefault(task, one.member_id)
    least, more = divmod(len(tasks), len(ordered))
    shares: dict[str, list[str]] = {one.member_id: [] for one in ordered}
    left: list[str] = []
    for task in tasks:
        share = shares.get(runner.get(task, ""))
        if share is not None and len(share) < least + (1 if more > 0 else 0):
            share.append(task)
            more -= len(share) == least + 1
        else:
            left.append(task)
    for task in left:
        smallest = min(ordered, key=lambda one: len(shares[one.member_id]))
        shares[smallest.member_id].append(task)
    return {
        member: {"tasks": [task for task in share if runner.get(task, member) == member]}
        for member, share in shares.items()
    }


def _said(member: GroupMember, what: str) -> list[str]:
    """A member that says something else than workers do has no tasks; it must not stop the others."""
    said = member.metadata.get(what) if isinstance(member.metadata, dict) else None
    return [task for task in said if isinstance(task, str)] if isinstance(said, list) else []
