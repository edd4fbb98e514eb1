"""What was received, in a form in which two servers can be compared.

Nothing is left out but what cannot be equal: a member id becomes the name of the member that it was given to (its
prefix is checked here), the server's own port becomes PORT, topic ids become topic names, the throttle time is dropped.
Lists whose order neither server promises are sorted.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

_MEMBER_ID = re.compile(r"(.+)-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
FIRST_OF_OURS = 10_000
"""The lowest tag that is Holdfast's own."""

_UNORDERED = {
    ("JoinGroupResponse", "members"): ("group_instance_id", "metadata", "member_id"),
    ("DescribedGroup", "members"): ("group_instance_id", "member_metadata", "member_id"),
    ("OffsetFetchResponse", "topics"): ("name",),
    ("OffsetFetchResponseGroup", "topics"): ("name", "topic_id"),
    ("OffsetFetchResponseTopic", "partitions"): ("partition_index",),
    ("OffsetFetchResponseGroupTopic", "partitions"): ("partition_index",),
}


class Transcript:
    """The lines of one run on one server."""

    def __init__(self, port: int, topics: Mapping[bytes, str]) -> None:
        self.lines: list[str] = []
        self._port = port
        self._topics = topics
        self._names: dict[str, str] = {}
        self._given: dict[str, int] = {}
        self.counts_generations = False
        """Whether generations are written as their distance from the first one."""
        self._first_generation: int | None = None

    def name_member(self, member_id: str, owner: str, prefix: str) -> None:
        """From now on this id is called after its owner, with a number."""
        made = _MEMBER_ID.fullmatch(member_id)
        if made is None or member_id in self._names:
            return  # one of the scenario's own, or known
        self._given[owner] = self._given.get(owner, 0) + 1
        was = "" if made[1] == prefix else f" with prefix {made[1]!r} instead of {prefix!r}"
        self._names[member_id] = f"{owner}.{self._given[owner]}{was}"

    def note(self, line: str) -> None:
        self.lines.append(line)

    def record(self, who: str, api: str, answer: object) -> None:
        self.note(f"{who} receives {api}: {self.rendered(answer)}")

    def rendered(self, value: object, field: str = "") -> str:
        if dataclasses.is_dataclass(value):
            return "{" + ", ".join(self._fields(value)) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(self.rendered(element) for element in value) + "]"
        if isinstance(value, str):
            return self._names.get(value) or ("an unknown member" if _MEMBER_ID.fullmatch(value) else repr(value))
        if isinstance(value, (bytes, bytearray, memoryview)):
            raw = bytes(value)
            return self._topics.get(raw, "no topic") if field == "topic_id" else f"x{raw.hex()}"
        if field == "generation_id" and self.counts_generations and isinstance(value, int) and value > 0:
            self._first_generation = self._first_generation or value
            return f"first+{value - self._first_generation}"
        if field == "port":
            return "PORT" if value == self._port else repr(value)
        return repr(value)

    def _fields(self, value: Any) -> Iterable[str]:
        kind = type(value).__name__
        for field in dataclasses.fields(value):
            if field.name == "throttle_time_ms":
                continue
            held = getattr(value, field.name)
            tag = field.metadata["wire"].tag
            if tag is not None and tag >= FIRST_OF_OURS and held == field.default:
                continue  # not on the wire, and nothing that Kafka could say
            if held and (keys := _UNORDERED.get((kind, field.name))):
                held = sorted(held, key=lambda element: [self.rendered(getattr(element, key), key) for key in keys])
            yield f"{field.name}={self.rendered(held, field.name)}"
