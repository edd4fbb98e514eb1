"""bootstrap.servers, as people write it."""

import pytest

from holdfast.client.addresses import Address, parse_bootstrap
from holdfast.client.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 , b:2 ,", [("a", 1), ("b", 2)]),
        ("a:1,a:1", [("a", 1)]),
        ("a", [("a", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[fe80::1%eth0]", [("fe80::1%eth0", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
        ("plaintext://[::1]:1", [("::1", 1)]),
    ],
)
def test_what_is_understood(text: str, addresses: list[tuple[str, int]]) -> None:
    assert list(parse_bootstrap(text)) == addresses


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no broker"),
        (" , ", "names no broker"),
        ("a:", "'' is no port"),
        ("a:0", "'0' is no port"),
        ("a:65536", "'65536' is no port"),
        ("a:x", "'x' is no port"),
        ("a:²", "'²' is no port"),
        (":1", "'' is no host"),
        ("a b:1", "'a b' is no host"),
        ("::1:9092", r"written \[::1\]:9092"),
        ("[::1", r"written \[::1\]:9092"),
        ("[::1]9092", r"written \[::1\]:9092"),
        ("http://a:1", "security.protocol is PLAINTEXT"),
        ("SSL://a:1", "security.protocol is PLAINTEXT"),
    ],
)
def test_what_is_not_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"bootstrap.servers.*{why}"):
        parse_bootstrap(text)


def test_an_address_is_shown_as_it_is_written() -> None:
    assert [str(Address("a", 1)), str(Address("::1", 1))] == ["a:1", "[::1]:1"]
