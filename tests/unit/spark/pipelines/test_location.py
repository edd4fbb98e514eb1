"""Where a table is: a directory, or a prefix in S3."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from holdfast.client.errors import ConfigError
from holdfast.spark.pipelines.location import Location

KEYS = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hidden"}
OPTIONS = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "eu-1"}


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("/data/lake", "/data/lake"),
        ("/data/lake/", "/data/lake"),
        ("file:///data/lake", "/data/lake"),
        ("file:/data/lake", "/data/lake"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/lake/", "s3://bucket/lake"),
    ],
)
def test_a_location_is_a_directory_or_a_prefix_in_s3(text: str, url: str) -> None:
    assert Location.parse(text).url == url


def test_a_relative_path_is_made_absolute() -> None:
    location = Location.parse("lake")
    assert location.path == Path.cwd() / "lake"
    assert (location / "x").path == Path.cwd() / "lake" / "x"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("s3://", "has no bucket"),
        ("hdfs://node/lake", "hdfs: is not known to support that"),
        ("gs://bucket/lake", "gs: is not known to support that"),
        ("/data/*", "which Spark reads as a pattern"),
    ],
)
def test_other_locations_are_rejected_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Location.parse(text)


def test_storage_options_of_a_directory_are_rejected() -> None:
    with pytest.raises(ConfigError, match="are for object stores"):
        Location.parse("/data/lake", "table", OPTIONS)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (
            "AWS_ENDPOINT_ULR",
            "http://127.0.0.1:1",
            r"'AWS_ENDPOINT_ULR' is unknown: .* did you mean AWS_ENDPOINT_URL\?",
        ),
        ("timeout", "5s", "'timeout' is unknown: .* for example AWS_ENDPOINT_URL"),
        ("AWS_BUCKET", "other", "'AWS_BUCKET' is unknown"),
        ("AWS_CONDITIONAL_PUT", "perhaps", 'are not valid: .*Failed to parse "perhaps"'),
        ("aws_endpoint", "http://127.0.0.1:2", "are not valid: Duplicate key aws_endpoint"),
    ],
)
def test_a_wrong_storage_option_is_one_sentence(name: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as reported:
        Location.parse("s3://bucket/lake", "table", {**OPTIONS, name: value})
    assert "\n" not in str(reported.value)


def test_all_known_storage_options_are_options_of_the_store() -> None:
    """obstore ends the process's thread with a panic at some other names."""
    from holdfast.spark.pipelines.location import _OPTIONS

    special = {"AWS_CONDITIONAL_PUT": "etag", "AWS_COPY_IF_NOT_EXISTS": "multipart", "AWS_CHECKSUM_ALGORITHM": "sha256"}
    special |= {"AWS_SERVER_SIDE_ENCRYPTION": "AES256"}
    for name in _OPTIONS - {"AWS_S3_EXPRESS"}:
        Location.parse("s3://bucket/lake", "table", {**KEYS, name: special.get(name, "true")})


def test_spark_gets_its_own_form_of_the_url() -> None:
    assert Location.parse("/data/my lake").spark_url == "file:///data/my lake"
    assert Location.parse("s3://bucket/lake").spark_url == "s3a://bucket/lake"


def test_a_location_travels_to_the_executors_without_its_store() -> None:
    location = Location.parse("s3://bucket/lake", "table", OPTIONS)
    assert location.store is location.store
    copy = pickle.loads(pickle.dumps(location))
    assert copy == location
    assert "store" not in vars(copy)
    assert copy.store is location.store, "a process connects once"
    assert copy.store.prefix == "lake"


def test_secrets_are_not_shown() -> None:
    location = Location.parse("s3://bucket/lake", "table", KEYS)
    assert "hidden" not in repr(location)
