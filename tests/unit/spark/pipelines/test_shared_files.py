"""Files at the location of a pipeline, on a disk and in S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import SharedFiles, open_files
from tests.support.s3_emulator import S3Emulator, s3_emulator


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Emulator]:
    with s3_emulator() as emulator:
        yield emulator


@pytest.fixture(params=["disk", "s3"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> SharedFiles:
    if request.param == "disk":
        return open_files(Location.parse(tmp_path / "lake"))
    s3: S3Emulator = request.getfixturevalue("s3")
    return open_files(Location.parse(f"s3://{s3.new_bucket()}/lake", "table", s3.options))


def test_a_file_is_created_once(files: SharedFiles) -> None:
    assert files.create("log/1.json", b"first")
    assert not files.create("log/1.json", b"second")
    assert files.read("log/1.json") == b"first"


def test_names_are_those_of_files_and_directories(files: SharedFiles) -> None:
    assert files.names("log") == []
    files.create("log/2.json", b"")
    files.create("log/1.json", b"")
    files.create("log/deeper/3.json", b"")
    files.create("logs/4.json", b"")
    assert files.names("log") == ["1.json", "2.json", "deeper"]


def test_a_removed_file_is_gone_and_removing_it_again_is_harmless(files: SharedFiles) -> None:
    files.create("log/1.json", b"first")
    files.remove("log/1.json")
    files.remove("log/1.json")
    assert files.read("log/1.json") is None
    assert files.create("log/1.json", b"second")


def test_a_write_whose_response_was_lost_is_not_taken_for_another_writers(s3: S3Emulator) -> None:
    files = open_files(Location.parse(f"s3://{s3.new_bucket()}/lake", "table", s3.options))
    assert files.create("log/1.json", b"mine")
    # The client has lost the response, sends the request again, and is refused.
    assert files.create("log/1.json", b"mine")
    assert not files.create("log/1.json", b"another writer's"), "the control"


def test_errors_of_s3_are_one_line(s3: S3Emulator) -> None:
    files = open_files(Location.parse("s3://no-such-bucket/lake", "table", s3.options))
    for request in (lambda: files.names("log"), lambda: files.create("log/1.json", b"")):
        with pytest.raises(OSError, match="NoSuchBucket") as raised:
            request()
        assert "\n" not in str(raised.value)
