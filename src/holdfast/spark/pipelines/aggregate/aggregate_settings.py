"""The key, amount, last value and window of a state, and its Arrow schema. They are fixed when the state is created."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cached_property
from typing import Final

import pyarrow as pa

from holdfast.client.errors import ConfigError
from holdfast.spark.pipelines.json_files import decode_json, encode_json, parse_or_damaged

WHAT: Final = "settings of a state"
BINARY: Final = "binary"
STRING: Final = "string"
BIGINT: Final = "bigint"
DOUBLE: Final = "double"
_TEXTS: Final = (BINARY, STRING)
_WHOLE: Final = {"tinyint", "smallint", "int", BIGINT}
_FRACTIONS: Final = {"float", DOUBLE}
_SECONDS: Final = {
    **dict.fromkeys(("s", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3_600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
}


@dataclass(frozen=True)
class AggregateSettings:
    """Spark expressions over the columns of the source, and their types."""

    key: str
    key_type: str
    amount: str | None = None
    """None: no sum is kept."""
    amount_type: str | None = None
    last: str | None = None
    """None: no last value is kept."""
    last_type: str | None = None
    window_us: int | None = None
    """The length of windows, which are aligned to 1970, UTC. None: there are no windows."""

    @cached_property
    def identity(self) -> list[str]:
        """The columns that identify a total."""
        return ["key"] if self.window_us is None else ["key", "window"]

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of a run."""
        fields = [("hash", pa.int64()), ("key", pa.large_binary())]
        if self.window_us is not None:
            fields.append(("window", pa.int64()))
        fields.append(("count", pa.int64()))
        if self.amount is not None:
            fields.append(("sum", pa.float64() if self.amount_type == DOUBLE else pa.int64()))
        if self.last is not None:
            fields.append(("last", pa.large_binary()))
        return pa.schema([*fields, ("time", pa.int64()), ("offset", pa.int64())])

    def difference(self, other: AggregateSettings) -> str | None:
        """The first difference, for an error message."""
        theirs = asdict(other)
        for name, value in asdict(self).items():
            if value != theirs[name]:
                return f"{name} {value!r} there, {theirs[name]!r} here"
        return None


def encode_settings(settings: AggregateSettings) -> bytes:
    return encode_json(asdict(settings))


def decode_settings(content: bytes, shown: str) -> AggregateSettings:
    fields = decode_json(content, shown, WHAT)

    def parse() -> AggregateSettings:
        del fields["format"]
        settings = AggregateSettings(**fields)
        fits = settings.key_type in _TEXTS and settings.last_type in (*_TEXTS, None)
        if not fits or settings.amount_type not in (BIGINT, DOUBLE, None):
            raise ValueError("it has unknown types")
        return settings

    return parse_or_damaged(shown, parse, WHAT)


def text_type(what: str, expression: str, spark_type: str) -> str:
    """The type of a key or a last value: bytes stay bytes, everything else is stored as text. Raises ConfigError."""
    if any(kind in spark_type for kind in ("<", "variant")):
        raise ConfigError(f"{what} {expression!r} is of type {spark_type}: make a text of it, e.g. with to_json")
    return BINARY if spark_type == BINARY else STRING


def amount_type(expression: str, spark_type: str) -> str:
    """Raises ConfigError for types that can be summed neither exactly in 64 bits nor as a double."""
    if spark_type in _WHOLE:
        return BIGINT
    if spark_type in _FRACTIONS:
        return DOUBLE
    raise ConfigError(
        f"amount {expression!r} is of type {spark_type}: cast it to BIGINT, which is summed up exactly, or to DOUBLE"
    )


def window_us(given: str | timedelta | None, what: str = "window") -> int | None:
    """Like '10 minutes'. Raises ConfigError."""
    if given is None:
        return None
    if isinstance(given, timedelta):
        length_us = given // timedelta(microseconds=1)
    else:
        read = re.fullmatch(r"\s*(\d+)\s*([a-z]+)\s*", given.lower())
        unit = _SECONDS.get(read[2]) if read else None
        if read is None or unit is None:
            raise ConfigError(
                f"{what} {given!r} is no length of time like '30 seconds', '10 minutes', '1 hour', '1 day'"
            )
        length_us = int(read[1]) * unit * 1_000_000
    if length_us <= 0:
        raise ConfigError(f"{what} {given!r}: it is to be longer than nothing")
    return length_us


def keep_us(given: str | timedelta | None, window: str | timedelta | None) -> int | None:
    """How long windows are kept. Raises ConfigError."""
    length_us = window_us(given, "keep_windows")
    if length_us is not None and window is None:
        raise ConfigError(f"keep_windows {given!r}: there are no windows; say how long they are (window)")
    return length_us
