"""Random lives of groups that use everything beyond Kafka at once: registrations, standbys, resyncs, failures, batches.

`ModelClient`s join, work, restart, hang up, pause and die; operators announce members and change the target; the disk
is slow or fails; the broker is killed. After every step:

- no partition is owned by two members that the group knows, by what they themselves believe: `nobody_owns_anothers`;
- generation and epoch never fall, and the epoch rises whenever ownership changes: `epochs_rise`;
- a member that is not in the group cannot commit: `strangers_cannot_commit`;
- who waits disturbs nobody while there is no room for it and others are expected: `quietly`;
- what the journal says is what the group is, epoch and registrations included: `the_broker_is_killed`.

And when everybody behaves for a while, at the end of every life: `what_comes_of_it`. Every life replays from its seed;
`python -m tests.unit.coordinator.test_random_extensions FIRST LAST` runs many.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from holdfast.coordinator import seats
from holdfast.coordinator.group import Group
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.moves import partitions_of
from holdfast.coordinator.states import EMPTY, STABLE
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import SESSION_MS, STORAGE_FAILED
from tests.unit.coordinator.extension_bench import ExtensionBench
from tests.unit.coordinator.model_client import ModelClient, Owned, share

STEPS = 60
LONGEST_WAIT_MS = 5_000
STEP_MS = 100
MOST_PARTITIONS = 9


class Life:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bench = ExtensionBench(partition_count=1, delay_ms=self.random.choice([0, 200]))
        self.topics = self.bench.topics
        self.topics |= {"t": 4, "u": 1}
        cooperative = self.random.random() < 0.5
        self.clients = [
            ModelClient(self.bench, self.topics, instance, version, cooperative, reads=reads, has_tags=tags)
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
            self.operator_announces: 5,
            self.operator_cancels: 2,
            self.operator_configures: 5,
            self.topic_grows: 3,
            self.somebody_resyncs_nonsense: 5,
            self.a_leader_fails: 2,
            self.some_join_together: 4,
            self.the_disk_fails: 2,
            self.the_disk_is_slow: 2,
            self.the_disk_stores_one: 6,
            self.the_disk_comes_back: 8,
            self.the_broker_is_killed: 2,
            self.a_sweep: 1,
        }
        self.steps, self.weights = list(steps), list(steps.values())

    def run(self) -> None:
        if self.random.random() < 0.7:
            self.bench.configure(target_size=self.random.choice([2, 3]))
            self.bench.configure(standby_takeover_ms=self.random.choice([-1, 300]))
        for _ in range(self.random.randint(0, 20)):
            self.behave()  # so that some lives begin with a group that works
        for _ in range(STEPS):
            (step,) = self.random.choices(self.steps, self.weights)
            self.counts[step.__name__] += 1
            step()
            self.check()
        self.what_comes_of_it()

    @property
    def group(self) -> Group | None:
        return self.bench.group_or_none()

    def one(self) -> ModelClient:
        return self.random.choice(self.clients)

    # -- what members do -----------------------------------------------------------------------------------------------

    def one_acts(self) -> None:
        self.quietly(self.one(), ModelClient.act)

    def all_act(self) -> None:
        for client in self.random.sample(self.clients, len(self.clients)):
            self.quietly(client, ModelClient.act)
            self.hear()

    def behave(self) -> None:
        self.all_act()
        self.bench.advance(STEP_MS)
        self.check()

    def all_behave_for_a_while(self) -> None:
        """So that there are settled groups for the rest to happen to."""
        for client in self.clients:
            client.paused = False
        for _ in range(self.random.randint(2, 8)):
            self.behave()

    def one_restarts(self) -> None:
        client = self.one()
        client.dies()
        client.starts()
        self.quietly(client, ModelClient.act)

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

            def leave(client: ModelClient) -> None:
                self.bench.leave((client.id, client.instance))
                client.starts()

            self.quietly(client, leave)

    def one_commits(self) -> None:
        client = self.one()
        if client.alive and client.id and client.generation >= 0:
            self.bench.commit_over(client.client, client.id, client.generation, client.instance)

    def a_leader_fails(self) -> None:
        for client in self.clients:
            client.fails_to_assign = True

    def somebody_resyncs_nonsense(self) -> None:
        """Often the leader, in the epoch that is: only what it asks for is wrong."""
        group, client = self.group, self.one()
        if group is None or self.random.random() < 0.3:
            leaders = []
        else:
            leaders = [one for one in self.clients if one.id and one.id == group.leader_id]
        client = leaders[0] if leaders else client
        if group is None or not client.is_working or client.paused or client.version < 7:
            return
        shares = {}
        for member in self.random.sample([*group.roster], min(2, len(group.roster))):
            numbers = self.random.sample(range(MOST_PARTITIONS), self.random.randint(0, 3))
            added = {("t", number) for number in numbers}
            grown = partitions_of(member.assignment) | added
            shares[member.id] = self.random.choice([b"\xff", share(added), share(grown), share(grown)])
        client.resync(shares, self.random.choice([group.epoch, group.epoch, group.epoch - 1, 0]))

    def some_join_together(self) -> None:
        wanting = [c for c in self.clients if c.alive and not (c.joined or c.pending or c.paused) and c.version == 9]
        if len(wanting) > 1:
            handles = self.bench.join_all(*[client.entry() for client in wanting], client=wanting[0].client)
            for client, handle in zip(wanting, handles, strict=True):
                client.wait_for(handle)

    # -- what operators do ---------------------------------------------------------------------------------------------

    def operator_removes(self) -> None:
        self.bench.leave(*[("", instance) for instance in self.random.sample("ABCDE", 2)])

    def operator_announces(self) -> None:
        ids = self.random.sample("ABCDEX", self.random.randint(1, 4))
        self.bench.add_members(*ids, wait_ms=self.random.choice([1, 500, 2_000, LONGEST_WAIT_MS]))

    def operator_cancels(self) -> None:
        self.bench.cancel(*self.random.sample("ABCDEX", self.random.randint(0, 3)))

    def operator_configures(self) -> None:
        if self.random.random() < 0.7:
            self.bench.configure(target_size=self.random.choice([0, 1, 2, 2, 3, 3, 5]))
        else:
            self.bench.configure(standby_takeover_ms=self.random.choice([-1, 1, 300, 300, 1_000]))

    def topic_grows(self) -> None:
        topic = self.random.choice("ttu")
        if self.topics[topic] < MOST_PARTITIONS:
            self.bench.topic_grew(topic, self.topics[topic] + 1)

    # -- what the world does -------------------------------------------------------------------------------------------

    def time_passes(self) -> None:
        self.bench.advance(self.random.choice([1, 50, 200, 200, 600, 600, 1_600, SESSION_MS + 100]))

    def the_disk_fails(self) -> None:
        self.bench.fail_appends(STORAGE_FAILED, count=self.random.randint(1, 2), after=self.random.randint(0, 2))

    def the_disk_is_slow(self) -> None:
        self.bench.hold()

    def the_disk_stores_one(self) -> None:
        if self.bench.held:
            self.bench.release_one()

    def the_disk_comes_back(self) -> None:
        self.bench.release()

    def a_sweep(self) -> None:
        self.bench.sweep()

    def the_broker_is_killed(self) -> None:
        """Also between an append and its answer: what is held is lost, or stored without anybody hearing of it."""
        before = None if self.group is None else (self.group.stored, self.group.epoch)
        if self.bench.held and self.random.random() < 0.5:
            self.bench.store_unheard()
            before = None
        if self.random.random() < 0.5:
            self.bench.compact()
        self.bench.restart()
        after = self.group
        if before is not None and (before[0].has_record or before[0].has_generation_record):
            assert after is not None and (after.stored, after.epoch) == before, "the journal says something else"
        elif before is not None and after is not None:
            assert after.extensions == before[0].extensions
        for client in self.clients:
            client.forget_request()
            client.look()
            client.client = ModelClient(self.bench, self.topics, None, 9, False).client

    # -- what holds ----------------------------------------------------------------------------------------------------

    def hear(self) -> None:
        for client in self.clients:
            client.hear()

    def check(self) -> None:
        self.hear()
        self.nobody_owns_anothers()
        self.epochs_rise()
        self.strangers_cannot_commit()

    def nobody_owns_anothers(self) -> None:
        group = self.group
        owner_of: dict[tuple[str, int], ModelClient] = {}
        for client in self.clients:
            member = None if group is None else group.roster.get(client.id)
            # One that the group has given up may not have heard of it; nor one that did not come to the join phase.
            late = (
                member is not None and member.was_absent and group is not None and client.generation < group.generation
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

    def strangers_cannot_commit(self) -> None:
        group = self.group
        if group is None or group.busy or group.state is EMPTY:
            return
        for client in self.clients:
            if client.id and client.generation >= 0 and group.roster.get(client.id) is None:
                done = self.bench.commit_over(client.client, client.id, client.generation, client.instance)
                assert ErrorCode.NONE not in done.codes, "a member that is gone commits"

    def quietly(self, client: ModelClient, does: Callable[[ModelClient], None]) -> None:
        """Whatever one does who waits or is new, nobody notices as long as there is no room for it."""
        group = self.group
        member = None if group is None else group.roster.holder_of(client.instance) or group.roster.get(client.id)
        has_share = member is not None and not member.waits
        if group is None or group.busy or group.state is not STABLE or has_share:
            does(client)
            return
        full = seats.room(group) == 0 and not group.places
        before = len(self.bench.told(EventKind.REBALANCE_STARTED))
        does(client)
        if full:
            assert len(self.bench.told(EventKind.REBALANCE_STARTED)) == before, "one who waits disturbed the others"

    # -- what comes of it in the end -----------------------------------------------------------------------------------

    def what_comes_of_it(self) -> None:
        self.bench.fail_appends(count=0)
        self.bench.release()
        for client in self.clients:
            client.paused = client.fails_to_assign = False
        for _ in range((LONGEST_WAIT_MS + 4 * SESSION_MS) // STEP_MS):
            self.behave()
        group, living = self.group, [client for client in self.clients if client.alive]
        if not living:
            assert group is None or group.state is EMPTY
            return
        assert group is not None and group.state is STABLE, f"{self.bench.describe()}"
        assert all(client.is_working and client.generation == group.generation for client in living)
        assert not self.bench.open
        self.everybody_has_a_place(group)
        self.everything_is_owned(group)

    def everybody_has_a_place(self, group: Group) -> None:
        facts, roster = group.extensions, group.roster
        assert not facts.registered, "expected for longer than was asked for"
        assert not group.places
        assert len(roster) + len(roster.waiting) == sum(client.alive for client in self.clients)
        if facts.target_size:
            assert len(roster) <= facts.target_size
            assert len(roster) == facts.target_size or not roster.waiting
        else:
            assert not roster.waiting

    def everything_is_owned(self, group: Group) -> None:
        owned: Counter[tuple[str, int]] = Counter()
        read: set[str] = set()
        for client in self.clients:
            owned.update(client.owned)
            if client.alive and client.id in group.roster:
                read.add(client.reads)
        assert all(count == 1 for count in owned.values())
        wanted: Owned = {(topic, number) for topic in read for number in range(self.topics[topic])}
        assert wanted <= owned.keys(), f"nobody has {wanted - owned.keys()}"


@pytest.mark.parametrize("seed", range(20))
def test_a_random_life(seed: int) -> None:
    Life(seed).run()


def main(first: int, last: int) -> None:
    counts: Counter[str] = Counter()
    failed: list[int] = []
    for seed in range(first, last):
        life = Life(seed)
        try:
            life.run()
        except (
            AssertionError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:  # every seed that fails is told, and the next one runs
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__} {str(error)[:300]}", flush=True)
        counts += life.counts
        counts += Counter(event.kind.value for event in life.bench.events)
        if (seed + 1 - first) % 250 == 0 or seed + 1 == last:
            print(f"{seed + 1 - first} lives, {len(failed)} failed: {failed[:50]} {dict(counts)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
