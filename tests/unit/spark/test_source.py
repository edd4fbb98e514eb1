"""Options that neither a stream nor a batch can have are refused when a query is built, in `load()`."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.client.errors import ConfigError
from holdfast.spark import source

READ = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
STREAM = READ | {"kafka.group.id": "g"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (STREAM | {"maxOffsetPerTriger": "1"}, "did you mean 'maxOffsetsPerTrigger'?"),
        ({"subscribe": "t"}, "option kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "exactly one of the options subscribe"),
        (STREAM | {"assign": '{"t": [0]}'}, "subscribe and assign are given"),
        (READ | {"startingOffsets": '{"t": [3]}'}, "option startingOffsets is"),
        (STREAM | {"startingOffsets": "{"}, "option startingOffsets is '{'"),
        (READ | {"endingOffsets": "{"}, "option endingOffsets is '{'"),
        (STREAM | {"kafka.sesion.timeout.ms": "1"}, "session.timeout.ms"),
        (STREAM | {"kafka.session.timeout.ms": "soon"}, "session.timeout.ms is 'soon'"),
        (STREAM | {"members": "none"}, "members"),
        (READ | {"members": "2"}, "option kafka.group.id is missing"),
        (STREAM | {"endingOffsets": "latest", "members": "2"}, "endingOffsets is not for a streaming query"),
        (READ | {"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        (STREAM | {"topic": "t"}, "unknown option 'topic'"),
        (STREAM | {"includeHeaders": "perhaps"}, "includeHeaders"),
    ],
)
def test_options_that_are_wrong_for_a_stream_and_for_a_batch(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        source.schema(options)

    assert said in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_if_nothing_says_which_one_it_is_both_mistakes_are_named() -> None:
    with pytest.raises(ConfigError) as raised:
        source.schema(READ | {"startingOffsets": "latest"})

    assert str(raised.value).startswith("with readStream: option kafka.group.id is missing: ")
    assert "; with read: startingOffsets is latest: " in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        STREAM,
        STREAM | {"members": "2", "startingOffsets": "latest"},
        READ,  # for a batch
        READ | {"endingOffsets": "latest"},
        STREAM | {"endingOffsets": "latest"},  # a batch ignores the group
    ],
)
@pytest.mark.parametrize("headers", ["true", "false"])
def test_options_that_are_right_for_one_of_them_have_columns(options: dict[str, Any], headers: str) -> None:
    found = source.schema(options | {"includeHeaders": headers})

    assert ("headers ARRAY" in found) is (headers == "true")
    assert found.startswith("key BINARY, value BINARY, topic STRING")
