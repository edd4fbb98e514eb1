"""Who comes first, wherever somebody has to.

All members of a group must come to the same answer, whichever of them leads and in whichever language it is written:
so strings compare as Java compares them, by UTF-16 code units. Python compares by code points, which differs for
what lies beyond the first 65,536 of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.assignors.interface import Cluster, MemberSubscription


def utf16(text: str) -> bytes:
    """A key that sorts as `String.compareTo` does. Half a surrogate pair is a string to Java, so it is one here."""
    return text.encode("utf-16-be", "surrogatepass")


def in_java_order(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=utf16)


def in_order(subscriptions: Mapping[str, MemberSubscription]) -> list[str]:
    """The member ids: static members by instance id, then the others by member id.

    KIP-345: a static member that restarts has a new member id, and must find its share where it left it.
    """

    def key(member: str) -> tuple[bool, bytes, bytes]:
        instance = subscriptions[member].group_instance_id
        return (instance is None, b"" if instance is None else utf16(instance), utf16(member))

    return sorted(subscriptions, key=key)


def subscribers(cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, list[str]]:
    """Topics that have partitions and somebody to read them, in order, each with its members in order."""
    # Every topic of the cluster first: a member's topics that are not in it then fall out by a lookup alone.
    found: dict[str, list[str]] = {topic: [] for topic in in_java_order(cluster.partitions)}
    for member in in_order(subscriptions):
        # A subscription that names a topic twice is still one subscription.
        for topic in set(subscriptions[member].topics):
            if (members := found.get(topic)) is not None:
                members.append(member)
    return {topic: members for topic, members in found.items() if members and cluster.partitions[topic] > 0}
