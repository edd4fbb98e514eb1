"""A custom assignor that distributes the lag evenly, instead of the number of partitions.

Each member reports the lag of its partitions to the leader; the leader assigns the partition with the largest lag to
the member with the least work so far. All members of a group must use it, under the same name:

    Consumer({"partition.assignment.strategy": [LagWeightedAssignor(lag=my_lag)], ...})
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from holdfast.assignors import Assignor, Cluster, MemberAssignment, MemberSubscription

Partition = tuple[str, int]


class LagWeightedAssignor(Assignor):
    """`lag` returns the number of unread records of each partition that this member knows."""

    name = "lag-weighted"

    def __init__(self, lag: Callable[[], Mapping[Partition, int]] = dict) -> None:
        self.lag = lag

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        return json.dumps(
            [[topic, number, lag] for (topic, number), lag in self.lag().items() if topic in topics]
        ).encode()

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        lag: dict[Partition, int] = defaultdict(int)
        for member in subscriptions.values():
            for topic, number, behind in json.loads(member.user_data or b"[]"):
                lag[topic, number] = max(behind, lag[topic, number])
        work = dict.fromkeys(sorted(subscriptions), 0)
        assignments: dict[str, dict[str, list[int]]] = {member: defaultdict(list) for member in work}
        partitions = [(topic, number) for topic, count in cluster.partitions.items() for number in range(count)]
        for topic, number in sorted(partitions, key=lambda partition: (-lag[partition], partition)):
            readers = [member for member in work if topic in subscriptions[member].topics]
            if readers:
                least = min(readers, key=work.__getitem__)
                assignments[least][topic].append(number)
                # One for the partition itself, so that idle ones are distributed as well.
                work[least] += lag[topic, number] + 1
        return {
            member: MemberAssignment({topic: sorted(numbers) for topic, numbers in assignment.items()})
            for member, assignment in assignments.items()
        }


if __name__ == "__main__":
    behind = {("orders", 0): 9000, ("orders", 1): 200, ("orders", 2): 100, ("orders", 3): 0}
    user_data = LagWeightedAssignor(lag=lambda: behind).subscription_user_data(["orders"])
    members = {"calm": MemberSubscription(["orders"]), "busy": MemberSubscription(["orders"], user_data)}
    for name, assignment in LagWeightedAssignor().assign(Cluster({"orders": 4}), members).items():
        print(
            name,
            assignment.partitions,
            sum(behind[topic, n] for topic, ns in assignment.partitions.items() for n in ns),
        )
