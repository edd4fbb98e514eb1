"""Entries of a partition: one line of JSON with a format number, in a file that is named by an offset.

An unknown format is rejected.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from holdfast.spark.pipelines.errors import Damaged, TooNew
from holdfast.types import TopicPartition

FORMAT: Final = 1
_SUFFIX: Final = ".json"
_DIGITS: Final = 20
"""Digits of the largest offset, so that names sort by offset."""
_REPAIR: Final = (
    "it was not left so by a writer that was killed. Take it from a backup; or, if it is the last entry of its "
    "partition, delete it, set the group's offset back to the number in its name, and start with a new checkpoint"
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first stored offset of a partition. The first writer determines it."""

    topic: str
    partition: int
    first: int


def decode_beginning(content: bytes, where: TopicPartition, shown: str, what: str) -> Beginning:
    fields = decode_json(content, shown, what)

    def parse() -> Beginning:
        beginning = Beginning(str(fields["topic"]), int(fields["partition"]), int(fields["first"]))
        if (beginning.topic, beginning.partition) != where:
            raise ValueError("it is not where it belongs")
        return beginning

    return parse_or_damaged(shown, parse, f"beginning of a {what}")


def name_of(number: int) -> str:
    return f"{number:0{_DIGITS}d}{_SUFFIX}"


def number_of(name: str, what: str) -> int:
    def parse() -> int:
        number = name.removesuffix(_SUFFIX)
        if _SUFFIX not in name or len(number) != _DIGITS or not number.isdecimal():
            raise ValueError("the name is no number")
        return int(number)

    return parse_or_damaged(name, parse, what)


def encode_json(fields: dict[str, Any]) -> bytes:
    return json.dumps({"format": FORMAT, **fields}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def encode_beginning(beginning: Beginning) -> bytes:
    return encode_json(asdict(beginning))


def decode_json(content: bytes, shown: str, what: str) -> dict[str, Any]:
    """Raises Damaged or TooNew, which name the file as `shown`, and `what` it should have been."""

    def parse() -> dict[str, Any]:
        if not content.endswith(b"\n"):
            raise ValueError("it is cut short")
        fields = json.loads(content)
        return {**fields, "format": int(fields["format"])}

    fields = parse_or_damaged(shown, parse, what)
    if fields["format"] > FORMAT:
        raise TooNew.because(shown, fields["format"], FORMAT)
    return fields


def parse_or_damaged(shown: str, parse: Callable[[], T], what: str) -> T:
    try:
        return parse()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged(f"{shown} is no {what} ({error}): {_REPAIR}") from error
