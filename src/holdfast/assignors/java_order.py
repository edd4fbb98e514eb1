"""The order of topics and members.

All members of a group must compute the same assignment, independent of the leader and its programming language. Strings
are therefore compared as in Java, by UTF-16 code units. Python compares code points, which differs for those above
65,535.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.assignors.interface import Cluster, MemberSubscription


def utf16(text: str) -> bytes:
    """A key that sorts like `String.compareTo`. Like Java, it accepts half a surrogate pair."""
    return text.encode("utf-16-be", "surrogatepass")


def in_java_order(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=utf16)


def in_order(subscriptions: Mapping[str, MemberSubscription]) -> list[str]:
    """The member ids: static members by instance id, then the others by member id.

    KIP-345: a static member that restarts has a new member id, and must keep its partitions.
    """

    def key(member: str) -> tuple[bool, bytes, bytes]:
        instance = subscriptions[member].group_instance_id
        return (instance is None, b"" if instance is None else utf16(instance), utf16(member))

    return sorted(subscriptions, key=key)


def subscribers(cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, list[str]]:
    """Topics that have partitions and subscribers, in order, each with its members in order."""
    # Starts with every topic of the cluster, so that one lookup skips a member's topics that do not exist.
    found: dict[str, list[str]] = {topic: [] for topic in in_java_order(cluster.partitions)}
    for member in in_order(subscriptions):
        # A subscription that names a topic twice is still one subscription.
        for topic in set(subscriptions[member].topics):
            if (members := found.get(topic)) is not None:
                members.append(member)
    return {topic: members for topic, members in found.items() if members and cluster.partitions[topic] > 0}
