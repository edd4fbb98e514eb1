"""An assignor of one's own: what waits to be read is shared out evenly, not the number of partitions.

Each member tells the leader how far it is behind on what it has had so far; the leader gives the longest queue that is
left to whoever has the least to do. All members of a group must use it, under the same name:

    Consumer({"partition.assignment.strategy": [LagWeightedAssignor(lag=my_lag)], ...})
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from holdfast.assignors import Assignor, Cluster, MemberAssignment, MemberSubscription

Partition = tuple[str, int]


class LagWeightedAssignor(Assignor):
    """`lag` says how many records this member still has to read, of each partition that it knows about."""

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
        shares: dict[str, dict[str, list[int]]] = {member: defaultdict(list) for member in work}
        partitions = [(topic, number) for topic, count in cluster.partitions.items() for number in range(count)]
        for topic, number in sorted(partitions, key=lambda partition: (-lag[partition], partition)):
            readers = [member for member in work if topic in subscriptions[member].topics]
            if readers:
                least = min(readers, key=work.__getitem__)
                shares[least][topic].append(number)
                work[least] += lag[topic, number] + 1  # one for the partition itself: idle ones are spread as well
        return {
            member: MemberAssignment({topic: sorted(numbers) for topic, numbers in share.items()})
            for member, share in shares.items()
        }


if __name__ == "__main__":
    behind = {("orders", 0): 9000, ("orders", 1): 200, ("orders", 2): 100, ("orders", 3): 0}
    told = LagWeightedAssignor(lag=lambda: behind).subscription_user_data(["orders"])
    members = {"calm": MemberSubscription(["orders"]), "busy": MemberSubscription(["orders"], told)}
    for name, share in LagWeightedAssignor().assign(Cluster({"orders": 4}), members).items():
        print(name, share.partitions, sum(behind[topic, n] for topic, ns in share.partitions.items() for n in ns))
