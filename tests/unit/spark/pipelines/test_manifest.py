"""The format of manifests: what is written is read, and what cannot be is one clear error."""

import json

import pytest

from holdfast.spark.pipelines.errors import Damaged, TooNew
from holdfast.spark.pipelines.land.manifest import (
    DataFile,
    Entry,
    Replaced,
    Snapshot,
    decode_entry,
    decode_snapshot,
    encode,
    number_of,
)

TOPIC_PARTITION = ("orders", 3)
FILE = DataFile("topic=orders/date=2026-11-16/3-x.parquet", "2026-11-16", 12, 20, 7, 4321)
ENTRY = Entry(*TOPIC_PARTITION, 10, 20, (FILE,), "writer", 1_700_000_000_000)
NAME = "00000000000000000010.json"
SNAPSHOT = Snapshot(*TOPIC_PARTITION, 10, 0, 99, (FILE,), ((5, 7),), (Replaced("topic=orders/old.parquet", 4),))


def test_an_entry_is_named_by_its_first_offset_in_twenty_digits() -> None:
    assert ENTRY.name == NAME
    assert number_of(ENTRY.name) == ENTRY.first


def test_what_is_written_is_read() -> None:
    assert decode_entry(encode(ENTRY), TOPIC_PARTITION, NAME) == ENTRY
    assert decode_snapshot(encode(SNAPSHOT), TOPIC_PARTITION, NAME) == SNAPSHOT
    assert json.loads(encode(ENTRY))["rows"] == 7


def test_an_entry_that_is_cut_short_anywhere_is_one_clear_error() -> None:
    for length in range(len(encode(ENTRY))):
        with pytest.raises(Damaged, match=rf"^lake/{NAME} is no manifest .*set the group's offset back"):
            decode_entry(encode(ENTRY)[:length], TOPIC_PARTITION, f"lake/{NAME}")


def test_a_newer_format_is_refused() -> None:
    newer = encode(ENTRY).replace(b'"format":1', b'"format":2')

    with pytest.raises(TooNew, match=rf"{NAME} has format 2, and this version of Holdfast knows 1: update it"):
        decode_entry(newer, TOPIC_PARTITION, NAME)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (b'"first":10', b'"first":11'),  # not what its name says
        (b'"end":20,"files"', b'"end":10,"files"'),
        (b'"partition":3', b'"partition":4'),
        (b'"first":12', b'"first":9'),
        (b"topic=orders/", b"../orders/"),
        (b'"writer"', b'"author"'),
        (b'"files":[', b'"files":7,"x":['),
    ],
)
def test_an_entry_that_cannot_be_is_one_clear_error(was: bytes, becomes: bytes) -> None:
    assert was in encode(ENTRY)

    with pytest.raises(Damaged, match=rf"{NAME} is no entry of a manifest"):
        decode_entry(encode(ENTRY).replace(was, becomes), TOPIC_PARTITION, NAME)


@pytest.mark.parametrize("name", ["10.json", "x" * 20 + ".json", NAME.removesuffix(".json"), NAME + "~"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(Damaged, match="the name is no number"):
        number_of(name)
