"""Random runs of groups that use everything beyond Kafka at once: registrations, standbys, resyncs, failures, batches.

`ReferenceClient`s join, work, restart, hang up, pause and die; operators register members and change the target; the
disk is slow or fails; the broker is killed. After every step:

- no partition is owned by two members that the group knows, by their own view: `no_partition_has_two_owners`;
- generation and epoch never fall, and the epoch rises whenever ownership changes: `epochs_rise`;
- a member that is not in the group cannot commit: `only_members_can_commit`;
- a standby or a new member causes no rebalance while the group is full: `quietly`;
- the group log gives the same group, with its epoch and registrations: `broker_is_killed`.

At the end of every run all members behave for a while: `settle_and_check`. Every run replays from its seed;
`python -m tests.unit.coordinator.test_random_extensions FIRST LAST` runs many.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.member import Role
from holdfast.coordinator.classic.state_machine import EMPTY, STABLE
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.events.partitions_moved import partitions_of
from holdfast.coordinator.extensions import standby_members
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_harness import ExtensionHarness
from tests.unit.coordinator.harness import SESSION_MS, STORAGE_FAILED
from tests.unit.coordinator.reference_client import Owned, ReferenceClient, assignment

STEPS = 60
MAX_WAIT_MS = 5_000
STEP_MS = 100
MAX_PARTITIONS = 9


class RandomRun:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.harness = ExtensionHarness(partition_count=1, delay_ms=self.random.choice([0, 200]))
        self.topics = self.harness.topics
        self.topics |= {"t": 4, "u": 1}
        cooperative = self.random.random() < 0.5
        self.clients = [
            ReferenceClient(self.harness, self.topics, instance, version, cooperative, reads=reads, has_tags=tags)
            for instance, version, reads, tags in (
                ("A", 9, "t", True),
                ("B", 5, "t", False),
                ("C", 9, "t", True),
                ("D", 7, "t", False),
                (None, 9, "t", True),
                (None, 4 if self.random.random() < 0.5 else 5, "t", False),
                ("E", 5, "u" if self.random.random() < 0.2 else "t", False),
            )
        ]
        self.generation = self.epoch = 0
        self.owners: dict[str, bytes] = {}
        self.counts: Counter[str] = Counter()
        steps: dict[Callable[[], None], int] = {
            self.all_behave_for_a_while: 40,
            self.one_acts: 15,
            self.time_passes: 10,
            self.one_restarts: 6,
            self.one_dies_or_comes: 6,
            self.one_pauses: 2,
            self.one_reconnects: 4,
            self.one_leaves: 3,
            self.one_commits: 4,
            self.operator_removes: 2,
            self.operator_registers_members: 5,
            self.operator_cancels: 2,
            self.operator_configures: 5,
            self.topic_grows: 3,
            self.invalid_resync_is_sent: 5,
            self.a_leader_fails: 2,
            self.some_join_together: 4,
            self.appends_fail: 2,
            self.appends_pause: 2,
            self.one_append_completes: 6,
            self.appends_resume: 8,
            self.broker_is_killed: 2,
            self.a_sweep: 1,
        }
        self.steps, self.weights = list(steps), list(steps.values())

    def run(self) -> None:
        if self.random.random() < 0.7:
            self.harness.configure(target_size=self.random.choice([2, 3]))
            self.harness.configure(standby_takeover_ms=self.random.choice([-1, 300]))
        for _ in range(self.random.randint(0, 20)):
            self.behave()  # so that some runs begin with a group that works
        for _ in range(STEPS):
            (step,) = self.random.choices(self.steps, self.weights)
            self.counts[step.__name__] += 1
            step()
            self.check()
        self.settle_and_check()

    @property
    def group(self) -> Group | None:
        return self.harness.group_or_none()

    def one(self) -> ReferenceClient:
        return self.random.choice(self.clients)

    # -- what members do -----------------------------------------------------------------------------------------------

    def one_acts(self) -> None:
        self.quietly(self.one(), ReferenceClient.act)

    def all_act(self) -> None:
        for client in self.random.sample(self.clients, len(self.clients)):
            self.quietly(client, ReferenceClient.act)
            self.take_reply()

    def behave(self) -> None:
        self.all_act()
        self.harness.advance(STEP_MS)
        self.check()

    def all_behave_for_a_while(self) -> None:
        """Makes settled groups for the other steps."""
        for client in self.clients:
            client.paused = False
        for _ in range(self.random.randint(2, 8)):
            self.behave()

    def one_restarts(self) -> None:
        client = self.one()
        client.dies()
        client.starts()
        self.quietly(client, ReferenceClient.act)

    def one_dies_or_comes(self) -> None:
        client = self.one()
        if client.alive:
            client.dies()
        else:
            client.starts()

    def one_pauses(self) -> None:
        client = self.one()
        client.paused = not client.paused

    def one_reconnects(self) -> None:
        client = self.one()
        if client.alive:
            client.reconnect()

    def one_leaves(self) -> None:
        client = self.one()
        if client.alive and client.id and client.pending is None:

            def leave(client: ReferenceClient) -> None:
                self.harness.leave((client.id, client.instance))
                client.starts()

            self.quietly(client, leave)

    def one_commits(self) -> None:
        client = self.one()
        if client.alive and client.id and client.generation >= 0:
            self.harness.commit_over(client.client, client.id, client.generation, client.instance)

    def a_leader_fails(self) -> None:
        for client in self.clients:
            client.fails_to_assign = True

    def invalid_resync_is_sent(self) -> None:
        """Often the leader, in the epoch that is: only what it asks for is wrong."""
        group, client = self.group, self.one()
        if group is None or self.random.random() < 0.3:
            leaders = []
        else:
            leaders = [one for one in self.clients if one.id and one.id == group.leader_id]
        client = leaders[0] if leaders else client
        if group is None or not client.is_working or client.paused or client.version < 7:
            return
        assignments = {}
        for member in self.random.sample([*group.members], min(2, len(group.members))):
            numbers = self.random.sample(range(MAX_PARTITIONS), self.random.randint(0, 3))
            added = {("t", number) for number in numbers}
            grown = partitions_of(member.assignment) | added
            assignments[member.id] = self.random.choice(
                [b"\xff", assignment(added), assignment(grown), assignment(grown)]
            )
        client.resync(assignments, self.random.choice([group.epoch, group.epoch, group.epoch - 1, 0]))

    def some_join_together(self) -> None:
        wanting = [c for c in self.clients if c.alive and not (c.joined or c.pending or c.paused) and c.version == 9]
        if len(wanting) > 1:
            handles = self.harness.join_all(*[client.entry() for client in wanting], client=wanting[0].client)
            for client, handle in zip(wanting, handles, strict=True):
                client.wait_for(handle)

    # -- what operators do ---------------------------------------------------------------------------------------------

    def operator_removes(self) -> None:
        self.harness.leave(*[("", instance) for instance in self.random.sample("ABCDE", 2)])

    def operator_registers_members(self) -> None:
        ids = self.random.sample("ABCDEX", self.random.randint(1, 4))
        self.harness.add_members(*ids, wait_ms=self.random.choice([1, 500, 2_000, MAX_WAIT_MS]))

    def operator_cancels(self) -> None:
        self.harness.cancel(*self.random.sample("ABCDEX", self.random.randint(0, 3)))

    def operator_configures(self) -> None:
        if self.random.random() < 0.7:
            self.harness.configure(target_size=self.random.choice([0, 1, 2, 2, 3, 3, 5]))
        else:
            self.harness.configure(standby_takeover_ms=self.random.choice([-1, 1, 300, 300, 1_000]))

    def topic_grows(self) -> None:
        topic = self.random.choice("ttu")
        if self.topics[topic] < MAX_PARTITIONS:
            self.harness.topic_grew(topic, self.topics[topic] + 1)

    # -- what the world does -------------------------------------------------------------------------------------------

    def time_passes(self) -> None:
        self.harness.advance(self.random.choice([1, 50, 200, 200, 600, 600, 1_600, SESSION_MS + 100]))

    def appends_fail(self) -> None:
        self.harness.fail_appends(STORAGE_FAILED, count=self.random.randint(1, 2), after=self.random.randint(0, 2))

    def appends_pause(self) -> None:
        self.harness.pause_appends()

    def one_append_completes(self) -> None:
        if self.harness.paused_appends:
            self.harness.complete_one_append()

    def appends_resume(self) -> None:
        self.harness.resume_appends()

    def a_sweep(self) -> None:
        self.harness.sweep()

    def broker_is_killed(self) -> None:
        """Also between an append and its answer: what is held is lost, or stored without anybody hearing of it."""
        before = None if self.group is None else (self.group.stored, self.group.epoch)
        if self.harness.paused_appends and self.random.random() < 0.5:
            self.harness.append_unanswered()
            before = None
        if self.random.random() < 0.5:
            self.harness.compact()
        self.harness.restart()
        after = self.group
        if before is not None and (before[0].has_record or before[0].has_generation_record):
            assert after is not None and (after.stored, after.epoch) == before, "the group log has something else"
        elif before is not None and after is not None:
            assert after.extensions == before[0].extensions
        for client in self.clients:
            client.forget_request()
            client.check_metadata()
            client.client = ReferenceClient(self.harness, self.topics, None, 9, False).client

    # -- what holds ----------------------------------------------------------------------------------------------------

    def take_reply(self) -> None:
        for client in self.clients:
            client.take_reply()

    def check(self) -> None:
        self.take_reply()
        self.no_partition_has_two_owners()
        self.epochs_rise()
        self.only_members_can_commit()

    def no_partition_has_two_owners(self) -> None:
        group = self.group
        owner_of: dict[tuple[str, int], ReferenceClient] = {}
        for client in self.clients:
            member = None if group is None else group.members.get(client.id)
            # One that the group has given up may not have heard of it; nor one that did not come to the join phase.
            late = (
                member is not None
                and member.missed_join_phase
                and group is not None
                and client.generation < group.generation
            )
            if member is None or late:
                continue
            for partition in client.owned:
                assert partition not in owner_of, f"{partition}: {owner_of[partition]} and {client}"
                owner_of[partition] = client

    def epochs_rise(self) -> None:
        group = self.group
        if group is None:
            return
        assert group.generation >= self.generation
        assert group.epoch >= self.epoch
        if not group.stored.awaits_sync:
            owners = {m.group_instance_id or m.member_id: m.assignment for m in group.stored.members}
            assert owners == self.owners or group.epoch > self.epoch, "ownership changed within an epoch"
            self.owners, self.epoch = owners, group.epoch
        self.generation = group.generation

    def only_members_can_commit(self) -> None:
        group = self.group
        if group is None or group.append_in_flight or group.state is EMPTY:
            return
        for client in self.clients:
            if client.id and client.generation >= 0 and group.members.get(client.id) is None:
                done = self.harness.commit_over(client.client, client.id, client.generation, client.instance)
                assert ErrorCode.NONE not in done.codes, "a member that is gone commits"

    def quietly(self, client: ReferenceClient, does: Callable[[ReferenceClient], None]) -> None:
        """Whatever a standby or a new member does, no rebalance starts as long as there is no room for it."""
        group = self.group
        member = None if group is None else group.members.static_member(client.instance) or group.members.get(client.id)
        has_assignment = member is not None and member.role is not Role.STANDBY
        if group is None or group.append_in_flight or group.state is not STABLE or has_assignment:
            does(client)
            return
        full = standby_members.free_slots(group) == 0 and not group.ext.vacancies
        before = len(self.harness.events_of(EventKind.REBALANCE_STARTED))
        does(client)
        if full:
            assert len(self.harness.events_of(EventKind.REBALANCE_STARTED)) == before, "a standby disturbed the others"

    # -- what comes of it in the end -----------------------------------------------------------------------------------

    def settle_and_check(self) -> None:
        self.harness.fail_appends(count=0)
        self.harness.resume_appends()
        for client in self.clients:
            client.paused = client.fails_to_assign = False
        for _ in range((MAX_WAIT_MS + 4 * SESSION_MS) // STEP_MS):
            self.behave()
        group, living = self.group, [client for client in self.clients if client.alive]
        if not living:
            assert group is None or group.state is EMPTY
            return
        assert group is not None and group.state is STABLE, f"{self.harness.describe()}"
        assert all(client.is_working and client.generation == group.generation for client in living)
        assert not self.harness.open
        self.every_member_is_active_or_standby(group)
        self.everything_is_owned(group)

    def every_member_is_active_or_standby(self, group: Group) -> None:
        facts, members = group.extensions, group.members
        assert not facts.registered, "expected for longer than was asked for"
        assert not group.ext.vacancies
        assert len(members) + len(members.standbys) == sum(client.alive for client in self.clients)
        if facts.target_size:
            assert len(members) <= facts.target_size
            assert len(members) == facts.target_size or not members.standbys
        else:
            assert not members.standbys

    def everything_is_owned(self, group: Group) -> None:
        owned: Counter[tuple[str, int]] = Counter()
        read: set[str] = set()
        for client in self.clients:
            owned.update(client.owned)
            if client.alive and client.id in group.members:
                read.add(client.reads)
        assert all(count == 1 for count in owned.values())
        wanted: Owned = {(topic, number) for topic in read for number in range(self.topics[topic])}
        assert wanted <= owned.keys(), f"nobody has {wanted - owned.keys()}"


class RunWithLostPartitions(RandomRun):
    """The partition of the group is lost and regained now and then."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.steps.append(self.partition_is_lost_and_regained)
        self.weights.append(6)

    def partition_is_lost_and_regained(self) -> None:
        self.harness.lose()
        assert self.group is None and self.harness.coordinator.next_deadline_ms() is None
        while self.harness.paused_appends:
            self.harness.complete_one_append()
        assert not self.harness.open, "somebody waits for a group that is served elsewhere"
        self.harness.regain()


@pytest.mark.parametrize("seed", range(20))
def test_a_random_run(seed: int) -> None:
    RandomRun(seed).run()


@pytest.mark.parametrize("seed", range(10))
def test_a_random_run_with_lost_partitions(seed: int) -> None:
    RunWithLostPartitions(seed).run()


def main(first: int, last: int) -> None:
    counts: Counter[str] = Counter()
    failed: list[int] = []
    for seed in range(first, last):
        run = RandomRun(seed)
        try:
            run.run()
        except (
            AssertionError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:  # every seed that fails is reported, and the next one runs
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__} {str(error)[:300]}", flush=True)
        counts += run.counts
        counts += Counter(event.kind.value for event in run.harness.events)
        if (seed + 1 - first) % 250 == 0 or seed + 1 == last:
            print(f"{seed + 1 - first} runs, {len(failed)} failed: {failed[:50]} {dict(counts)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
