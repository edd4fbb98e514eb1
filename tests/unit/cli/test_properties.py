"""Files of settings as Java reads them."""

import pytest

from holdfast.cli.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("  a = b  ", {"a": "b  "}),
        ("a: b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("password=a=b:c #d", {"password": "a=b:c #d"}),
        ("# no\n! no\n\n  # no\na=b\r\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\\n   c\nd=e", {"a": "bc", "d": "e"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=one\\ntwo\\ttab\\u00e9", {"a": "one\ntwo\ttabé"}),
        ("a\\=b\\:c=d", {"a=b:c": "d"}),
        ("a=C:\\\\dir", {"a": "C:\\dir"}),
        ("a=b\na=c", {"a": "c"}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_lines_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected
