"""Records as text: by template and as JSON."""

from __future__ import annotations

import pytest

from holdfast.cli.record_format import record_json, template, template_option, unescaped


class Record:
    def __init__(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | None) -> None:
        self._key, self._value, self._headers = key, value, headers

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers


FULL = Record(b"k", "wört".encode(), [("a", b"1"), ("b", None)])
BARE = Record(None, None, None)
BINARY = Record(b"\xff", b"\xfe\n", [("h", b"\xfd")])


@pytest.mark.parametrize(
    ("text", "record", "expected"),
    [
        ("{value}\\n", FULL, "wört\n".encode()),
        ("{topic}-{partition}@{offset}\\t{timestamp} {key} {headers}", FULL, b"orders-2@7\t1000 k a=1,b=null"),
        ("{key}={value}[{headers}]", BARE, b"null=null[]"),
        ("{key}{value}{headers}", BINARY, b"\xff\xfe\nh=\xfd"),
        ("{{literal}} \\\\n", FULL, b"{literal} \\n"),
    ],
)
def test_a_template_prints_fields_and_leaves_bytes_as_they_are(text: str, record: Record, expected: bytes) -> None:
    assert template(template_option(text))(record) == expected


def test_json_distinguishes_text_from_bytes() -> None:
    place = {"topic": "orders", "partition": 2, "offset": 7, "timestamp": 1000}
    assert record_json(FULL) == place | {
        "key": "k",
        "value": "wört",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
    }
    assert record_json(BARE) == place | {"key": None, "value": None, "headers": []}
    assert record_json(BINARY) == place | {
        "key_base64": "/w==",
        "value_base64": "/go=",
        "headers": [{"name": "h", "value_base64": "/Q=="}],
    }


def test_escapes() -> None:
    assert unescaped(r"a\tb\n\\n\x") == "a\tb\n\\n\\x"
