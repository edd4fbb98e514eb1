"""Files at the location of a pipeline, on a disk and in S3."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import PIECE, SharedFiles, open_files
from tests.support.lossy_http import Fault, LossyHttp, lossy_http
from tests.support.s3_emulator import S3Emulator


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


def test_names_after_a_name_are_listed_without_it(files: SharedFiles) -> None:
    for number in range(5):
        files.create(f"log/{number}.json", b"")
    assert files.names("log", after="2.json") == ["3.json", "4.json"]
    assert files.names("log", after="4.json") == []


def test_directories_and_times_are_listed(files: SharedFiles) -> None:
    before_s = time.time() - 2  # S3 knows seconds
    for name in ("a", "b/c", ".d/e"):
        files.create(f"log/{name}", b"")
    assert files.directories("log") == [".d", "b"]
    assert files.directories("none") == []
    assert before_s <= files.modified_s("log")["a"] <= time.time() + 1
    assert files.modified_s("none") == {}


def test_a_large_file_is_written_and_read_in_pieces(files: SharedFiles) -> None:
    content = os.urandom(1 << 16) * 200 + b"the end"

    files.write("runs/1", content)

    pieces = list(files.pieces("runs/1"))
    assert len(pieces) == 2
    assert b"".join(pieces) == content
    with pytest.raises(FileNotFoundError):
        list(files.pieces("runs/2"))


def test_a_file_that_does_not_exist_cannot_be_touched(files: SharedFiles) -> None:
    files.write("runs/1", b"")
    files.touch("runs/1")
    with pytest.raises(FileNotFoundError):
        files.touch("runs/2")


# -- S3 ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def lossy(s3: S3Emulator) -> Iterator[LossyHttp]:
    with lossy_http(s3.url) as before_s3:
        yield before_s3


@pytest.fixture
def bucket(s3: S3Emulator) -> str:
    return s3.new_bucket()


@pytest.fixture
def over_lossy(s3: S3Emulator, lossy: LossyHttp, bucket: str) -> SharedFiles:
    options = {**s3.options, "AWS_ENDPOINT_URL": lossy.url}
    return open_files(Location.parse(f"s3://{bucket}/lake", "table", options))


@pytest.mark.parametrize("fault", [Fault(500), Fault(None)], ids=["an error instead", "no response"])
def test_a_write_whose_response_was_lost_is_ours_and_one_of_another_is_not(
    lossy: LossyHttp, over_lossy: SharedFiles, fault: Fault
) -> None:
    lossy.once("PUT", fault)
    assert over_lossy.create("log/1.json", b"mine")
    assert over_lossy.read("log/1.json") == b"mine"

    lossy.once("PUT", fault)
    assert not over_lossy.create("log/1.json", b"another writer's"), "the control"
    assert over_lossy.read("log/1.json") == b"mine"


def test_a_write_that_was_not_carried_out_is_an_error(lossy: LossyHttp, over_lossy: SharedFiles) -> None:
    lossy.choose = lambda method, _path: Fault(400, is_forwarded=False) if method == "PUT" else None
    for write in (over_lossy.create, over_lossy.write):
        with pytest.raises(OSError, match="400 Bad Request"):
            write("log/1.json", b"mine")
    lossy.choose = lambda _method, _path: None
    assert over_lossy.read("log/1.json") is None


def test_a_write_that_ended_with_an_error_and_was_carried_out_is_none(
    lossy: LossyHttp, over_lossy: SharedFiles
) -> None:
    lossy.choose = lambda method, _path: Fault(400) if method == "PUT" else None
    assert over_lossy.create("log/1.json", b"mine")
    over_lossy.write("runs/1", b"mine")
    with pytest.raises(OSError, match="400 Bad Request"):
        over_lossy.create("log/1.json", b"another writer's")


def test_a_store_that_cannot_be_reached_is_an_error_after_a_bounded_time(s3: S3Emulator) -> None:
    """As long as a broker gives its members; the store itself would try for three minutes."""
    store = Location.parse("s3://bucket/lake", "table", s3.options).store
    assert store.retry_config is not None
    assert store.retry_config["retry_timeout"] == timedelta(seconds=15)
    assert store.client_options is not None
    assert store.client_options["connect_timeout"]


def test_an_upload_in_parts_whose_last_response_was_lost_is_there(lossy: LossyHttp, over_lossy: SharedFiles) -> None:
    content = bytes(PIECE + 1)
    lost = [Fault(500)]
    lossy.choose = lambda method, path: (
        lost.pop() if lost and method == "POST" and path.endswith("?uploads") is False else None
    )

    over_lossy.write("runs/1", content)

    assert not lost, "the control: it was lost"
    assert b"".join(over_lossy.pieces("runs/1")) == content


def test_an_upload_that_was_not_completed_is_invisible(s3: S3Emulator, bucket: str) -> None:
    files = open_files(Location.parse(f"s3://{bucket}/lake", "table", s3.options))
    upload = s3.client().create_multipart_upload(Bucket=bucket, Key="lake/runs/1")["UploadId"]
    s3.client().upload_part(Bucket=bucket, Key="lake/runs/1", UploadId=upload, PartNumber=1, Body=b"half of it")

    assert files.names("runs") == []
    assert files.modified_s("runs") == {}
    assert files.read("runs/1") is None
    files.write("runs/1", b"whole")
    assert files.names("runs") == ["1"], "the control"


def _requests(files: SharedFiles) -> list[Callable[[], object]]:
    return [
        lambda: files.names("log"),
        lambda: files.modified_s("log"),
        lambda: files.read("log/1.json"),
        lambda: files.create("log/1.json", b"x"),
        lambda: files.write("log/1.json", b"x"),
    ]


def assert_all_fail(files: SharedFiles, with_message: str) -> None:
    for request in _requests(files):
        with pytest.raises(OSError, match=with_message) as raised:
            request()
        assert not isinstance(raised.value, FileNotFoundError)
        assert "\n" not in str(raised.value)


def test_a_missing_bucket_is_one_sentence(s3: S3Emulator) -> None:
    files = open_files(Location.parse("s3://no-such-bucket/lake", "table", s3.options))
    assert_all_fail(files, r"the bucket no-such-bucket does not exist \(NoSuchBucket\)")


def test_denied_access_is_one_sentence(lossy: LossyHttp, over_lossy: SharedFiles) -> None:
    denied = Fault(403, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
    lossy.choose = lambda _method, _path: denied
    assert_all_fail(over_lossy, r"access was denied \(AccessDenied\): check the credentials")


def test_missing_credentials_are_one_sentence(lossy: LossyHttp, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    lossy.choose = lambda _method, _path: Fault(403, is_forwarded=False)
    options = {"AWS_ENDPOINT_URL": lossy.url, "AWS_METADATA_ENDPOINT": lossy.url, "AWS_ALLOW_HTTP": "true"}
    files = open_files(Location.parse("s3://bucket/lake", "table", options))
    assert_all_fail(files, "there are no credentials: set AWS_ACCESS_KEY_ID")
