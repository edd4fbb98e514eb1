"""`WorkerPool`: processes that divide named tasks among themselves, like the workers of Kafka Connect.

    def run(task, stopping):
        while not stopping.is_set():
            copy_some(task)

    with WorkerPool(config, ["orders", "invoices", "returns"], run):
        signal.pause()

Each task runs in one process at a time. A task that keeps its worker continues to run during a rebalance. A task that
moves is first stopped by its old worker, which rejoins, and then started by its new worker. When a worker dies, its
tasks are distributed among the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from holdfast.client.member import GroupMember, Member, MemberState
from holdfast.client.runtime import SYSTEM, Runtime

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
    """It was asked to stop and is still running."""
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
        _runtime: Runtime = SYSTEM,
    ) -> None:
        """`run(task, stopping)` runs in its own thread and returns soon after `stopping` is set. If it raises an
        exception, that is reported to `on_error`, and the task runs again when it is next assigned. If it does not stop
        within `stop_timeout`, the task does not move before it stops."""
        self._clock = _runtime.clock
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
            self._metadata,
            assign_tasks,
            on_assignment=self._assigned,
            on_revoked=self._revoked,
            _runtime=_runtime,
        )

    @property
    def running(self) -> list[str]:
        """The tasks that this process runs. Raises the failure that ended the membership."""
        _ = self._member.current
        with self._lock:
            return sorted(task for task, one in self._running.items() if one.thread.is_alive())

    @property
    def assignment_epoch(self) -> int | None:
        """The fencing token of the current tasks. None without tasks, or if the broker has no assignment epochs, as
        with Apache Kafka."""
        current = self._member.current
        return None if current is None else current.assignment_epoch

    def set_tasks(self, tasks: Iterable[str]) -> None:
        """Replace the list of tasks; the group rebalances. A task runs as long as any member lists it."""
        self._tasks = sorted(set(tasks))
        self._member.rejoin("the tasks have changed")

    def start(self) -> Self:
        self._member.start()
        return self

    def close(self, *, leave: bool = False) -> None:
        """Stops the tasks, then leaves the group. A static worker stays in the group unless `leave`."""
        with self._lock:  # threads that start a task hold it, too, so none starts after this
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

    def _metadata(self) -> Mapping[str, Any]:
        return {PROTOCOL: {"tasks": self._tasks, "running": sorted(self._known_running())}}

    def _revoked(self, lost: bool) -> None:
        if lost:  # others may run them by now
            self._stop(self._known_running())

    def _assigned(self, adopted: MemberState) -> None:
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
        """Returns the tasks that have stopped. The others still count as running, so that no other worker starts
        them."""
        with self._lock:
            going = {task: self._running[task] for task in tasks if task in self._running}
        for one in going.values():
            one.stopping.set()
        deadline = self._clock.now() + self._stop_timeout
        stopped = set()
        for task, one in going.items():
            if not one.late and one.thread is not threading.current_thread():
                self._clock.join(one.thread, max(0.0, deadline - self._clock.now()))
            with self._lock:
                if one.ended:
                    stopped.add(task)
                    self._running.pop(task, None)
                elif not one.late:
                    one.late = True
                    logger.error("task %s did not stop within %s s; it runs on", task, self._stop_timeout)
        return stopped


def assign_tasks(members: Sequence[GroupMember]) -> dict[str, Any]:
    """Distributes tasks evenly with as few moves as possible. A task that a worker still runs is not assigned to
    another one."""
    ordered = sorted(
        members, key=lambda one: (one.group_instance_id is None, one.group_instance_id or "", one.member_id)
    )
    tasks = sorted({task for one in ordered for task in _string_list(one, "tasks")})
    runner: dict[str, str] = {}
    for one in ordered:
        for task in _string_list(one, "running"):
            runner.setdefault(task, one.member_id)
    least, more = divmod(len(tasks), len(ordered))
    assigned: dict[str, list[str]] = {one.member_id: [] for one in ordered}
    left: list[str] = []
    for task in tasks:
        tasks_of = assigned.get(runner.get(task, ""))
        if tasks_of is not None and len(tasks_of) < least + (1 if more > 0 else 0):
            tasks_of.append(task)
            more -= len(tasks_of) == least + 1
        else:
            left.append(task)
    for task in left:
        smallest = min(ordered, key=lambda one: len(assigned[one.member_id]))
        assigned[smallest.member_id].append(task)
    return {
        member: {"tasks": [task for task in own if runner.get(task, member) == member]}
        for member, own in assigned.items()
    }


def _string_list(member: GroupMember, key: str) -> list[str]:
    """A member whose metadata is not a worker's gets no tasks and must not stop the others."""
    found = member.metadata.get(key) if isinstance(member.metadata, dict) else None
    return [task for task in found if isinstance(task, str)] if isinstance(found, list) else []
