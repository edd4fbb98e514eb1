"""The formats of versions and settings: what is written is read, and what cannot be is one clear error."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.client.errors import ConfigError
from holdfast.spark.pipelines.aggregate import run_files
from holdfast.spark.pipelines.aggregate.aggregate_query import columns
from holdfast.spark.pipelines.aggregate.aggregate_settings import (
    amount_type,
    decode_settings,
    encode_settings,
    text_type,
    window_us,
)
from holdfast.spark.pipelines.aggregate.run_files import encode_run, open_run
from holdfast.spark.pipelines.aggregate.version import RunFile, Version, decode_version, encode_version
from holdfast.spark.pipelines.errors import Damaged, TooNew
from tests.unit.spark.pipelines.aggregate_harness import COUNTED, WHOLE, WINDOWED

TOPIC_PARTITION = ("orders", 3)
VERSION = Version(*TOPIC_PARTITION, 10, 20, (RunFile("10-x.arrow", 7, 4321, 99),), "writer", 1_700_000_000_000)
NAME = f"{10:020d}.json"


def test_what_is_written_is_read() -> None:
    assert VERSION.name == NAME
    assert decode_version(encode_version(VERSION), TOPIC_PARTITION, NAME) == VERSION
    for settings in (WHOLE, WINDOWED, COUNTED):
        assert decode_settings(encode_settings(settings), "settings.json") == settings


def test_a_version_that_is_cut_short_anywhere_is_one_clear_error() -> None:
    whole = encode_version(VERSION)
    for length in range(len(whole)):
        with pytest.raises(Damaged, match=rf"^totals/{NAME} is no version of a state .*set the group's offset back"):
            decode_version(whole[:length], TOPIC_PARTITION, f"totals/{NAME}")


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (b'"first":10', b'"first":11'),  # not what its name says
        (b'"end":20', b'"end":10'),
        (b'"partition":3', b'"partition":4'),
        (b'"10-x.arrow"', b'"../10-x.arrow"'),
        (b'"crc32c":99', b'"crc32c":null'),
        (b'"runs":[', b'"runs":7,"x":['),
    ],
)
def test_a_version_that_cannot_be_is_one_clear_error(was: bytes, becomes: bytes) -> None:
    assert was in encode_version(VERSION)

    with pytest.raises(Damaged, match=rf"{NAME} is no version of a state"):
        decode_version(encode_version(VERSION).replace(was, becomes), TOPIC_PARTITION, NAME)


def test_settings_that_cannot_be_are_one_clear_error() -> None:
    for bad in (encode_settings(replace(WHOLE, key_type="map")), encode_settings(WHOLE).replace(b'"key"', b'"clef"')):
        with pytest.raises(Damaged, match=r"settings\.json is no settings of a state"):
            decode_settings(bad, "settings.json")
    with pytest.raises(TooNew, match=r"settings\.json has format 2"):
        decode_settings(encode_settings(WHOLE).replace(b'"format":1', b'"format":2'), "settings.json")


def test_a_run_of_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.arrow"
    with monkeypatch.context() as newer:
        newer.setattr(run_files, "FORMAT", 2)
        path.write_bytes(encode_run(WHOLE.schema.empty_table(), WHOLE))

    with pytest.raises(TooNew, match=r"run\.arrow has format 2, and this version of Holdfast knows 1"):
        open_run(path, WHOLE)


def test_a_run_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.arrow"
    path.write_bytes(encode_run(COUNTED.schema.empty_table(), COUNTED))
    with pytest.raises(Damaged, match="it has other columns than the settings say"):
        open_run(path, WHOLE)
    path.write_bytes(b"no Arrow at all")
    with pytest.raises(Damaged, match=r"run\.arrow is no run of a state"):
        open_run(path, WHOLE)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("30 seconds", 30), ("10 minutes", 600), ("1 hour", 3600), ("2d", 172_800), (timedelta(seconds=0.5), 0.5)],
)
def test_windows_are_lengths_of_time(given: str | timedelta, seconds: float) -> None:
    assert window_us(given) == seconds * 1_000_000


@pytest.mark.parametrize("given", ["soon", "10", "500ms", "0 seconds", "1 fortnight", timedelta(0)])
def test_other_windows_are_refused(given: str | timedelta) -> None:
    with pytest.raises(ConfigError, match="window"):
        window_us(given)
    assert window_us(None) is None


def test_what_has_no_exact_sum_is_refused() -> None:
    assert [amount_type("a", kind) for kind in ("int", "bigint", "float", "double")] == [
        "bigint",
        "bigint",
        "double",
        "double",
    ]
    with pytest.raises(ConfigError, match=r"amount 'price' is of type decimal\(10,2\): cast it to BIGINT"):
        amount_type("price", "decimal(10,2)")


def test_what_is_no_text_is_refused_as_a_key() -> None:
    assert [text_type("key", "k", kind) for kind in ("binary", "string", "int")] == ["binary", "string", "string"]
    with pytest.raises(ConfigError, match="make a text of it"):
        text_type("key", "k", "struct<a:int>")


def test_the_plan_has_what_the_settings_ask_for() -> None:
    assert [one.rpartition(" AS ")[2] for one in columns(WINDOWED)][3:] == ["time", "key", "window", "amount", "last"]
    assert [one.rpartition(" AS ")[2] for one in columns(COUNTED)][3:] == ["time", "key"]
