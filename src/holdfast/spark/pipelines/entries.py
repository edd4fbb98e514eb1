"""What is entered of a partition: one line of JSON, in a file that is named by an offset, with the format in front.

A format that is not known is refused: nobody guesses what a newer Holdfast has written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from holdfast.spark.offsets import Where
from holdfast.spark.pipelines.errors import Damaged, TooNew

FORMAT: Final = 1
_SUFFIX: Final = ".json"
_DIGITS: Final = 20
"""Of the largest offset, so that names are in the order of offsets."""
_REPAIR: Final = (
    "it was not left so by a writer that was killed. Take it from a backup; or, if it is the last entry of its "
    "partition, delete it, set the group's offset back to the number in its name, and start with a new checkpoint"
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where what is kept of a partition begins. The first writer decides."""

    topic: str
    partition: int
    first: int


def decode_beginning(content: bytes, where: Where, shown: str, what: str) -> Beginning:
    said = decoded(content, shown, what)

    def parse() -> Beginning:
        beginning = Beginning(str(said["topic"]), int(said["partition"]), int(said["first"]))
        if (beginning.topic, beginning.partition) != where:
            raise ValueError("it is not where it belongs")
        return beginning

    return parsed(shown, parse, f"beginning of a {what}")


def name_of(number: int) -> str:
    return f"{number:0{_DIGITS}d}{_SUFFIX}"


def number_of(name: str, what: str) -> int:
    def parse() -> int:
        number = name.removesuffix(_SUFFIX)
        if _SUFFIX not in name or len(number) != _DIGITS or not number.isdecimal():
            raise ValueError("the name is no number")
        return int(number)

    return parsed(name, parse, what)


def encoded(said: dict[str, Any]) -> bytes:
    return json.dumps({"format": FORMAT, **said}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def encode_beginning(beginning: Beginning) -> bytes:
    return encoded(asdict(beginning))


def decoded(content: bytes, shown: str, what: str) -> dict[str, Any]:
    """Raises Damaged or TooNew, which name the file as `shown`, and `what` it should have been."""

    def parse() -> dict[str, Any]:
        if not content.endswith(b"\n"):
            raise ValueError("it is cut short")
        said = json.loads(content)
        return {**said, "format": int(said["format"])}

    said = parsed(shown, parse, what)
    if said["format"] > FORMAT:
        raise TooNew.because(shown, said["format"], FORMAT)
    return said


def parsed(shown: str, parse: Callable[[], T], what: str) -> T:
    try:
        return parse()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged(f"{shown} is no {what} ({error}): {_REPAIR}") from error
