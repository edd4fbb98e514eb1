"""Addresses of brokers, the mode that follows from them, and the directory."""

from __future__ import annotations

import pytest

from holdfast.client.addresses import Address
from holdfast.gateway.brokers import (
    BootstrapAddress,
    BrokerDirectory,
    GatewayAddresses,
    detect_transparent_mode,
    parse_bootstrap,
    split_usable,
)
from holdfast.gateway.kafka.errors import KafkaSetupError, KafkaUnreachable

GATEWAY = GatewayAddresses(Address("gw.example", 9092))


# -- addresses ---------------------------------------------------------------------------------------------------------


def test_bootstrap_addresses_with_and_without_ids() -> None:
    assert parse_bootstrap(" 1=one:9095, two:9096 ,0=[::1]:9097,three,two:9096") == (
        BootstrapAddress(1, Address("one", 9095)),
        BootstrapAddress(None, Address("two", 9096)),
        BootstrapAddress(0, Address("::1", 9097)),
        BootstrapAddress(None, Address("three", 9092)),
    )
    assert [str(one) for one in parse_bootstrap("1=one:9095,two:9096")] == ["1=one:9095", "two:9096"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no broker"),
        (" , ", "names no broker"),
        ("x=one:9095", "'x' is no broker id"),
        ("-1=one:9095", "'-1' is no broker id"),
        ("4294967296=one:9095", "is no broker id"),
        ("=one:9095", "'' is no broker id"),
        ("1=one:0", "--kafka has 'one:0', which is not host:port"),
        ("1=", "--kafka names no broker"),
        ("1=one:1,1=two:2", "two addresses for broker 1, one:1 and two:2"),
    ],
)
def test_bootstrap_addresses_that_are_none(text: str, said: str) -> None:
    with pytest.raises(KafkaSetupError, match=said):
        parse_bootstrap(text)


def test_each_broker_has_a_port_of_the_gateway() -> None:
    assert GATEWAY.of(0) == ("gw.example", 9093)
    assert GATEWAY.of(1001) == ("gw.example", 10_094)
    assert GATEWAY.of(65_535 - 9093) == ("gw.example", 65_535)
    for node_id in (-1, 65_536 - 9093, 2**31 - 1):
        with pytest.raises(KafkaSetupError, match="which does not exist"):
            GATEWAY.of(node_id)


# -- the mode ----------------------------------------------------------------------------------------------------------


def advertised(*ports: int, host: str = "gw.example") -> dict[int, Address]:
    return {number: Address(host, port) for number, port in enumerate(ports, start=1)}


def test_brokers_that_advertise_the_gateway_need_no_rewriting() -> None:
    assert detect_transparent_mode(advertised(9094, 9095, 9096), GATEWAY)
    assert detect_transparent_mode(advertised(9094, host="GW.Example."), GATEWAY)


def test_brokers_that_advertise_themselves_do() -> None:
    assert not detect_transparent_mode(advertised(9094, 9095, host="kafka.example"), GATEWAY)
    assert not detect_transparent_mode(advertised(19_094, 19_095), GATEWAY)


def test_a_mixture_is_refused() -> None:
    listed = advertised(9094, 9095) | {3: Address("three", 9095)}
    with pytest.raises(KafkaSetupError) as raised:
        detect_transparent_mode(listed, GATEWAY)
    assert "brokers 1, 2 advertise the gateway's address" in str(raised.value)
    assert "broker 3 advertises three:9095: set advertised.listeners of broker 3 to gw.example:9096" in str(
        raised.value
    )


def test_a_port_of_the_gateway_that_is_another_broker_s_is_refused() -> None:
    for listed in (advertised(9093, 9094), advertised(9092, 9095), advertised(9095, 9094)):
        with pytest.raises(KafkaSetupError, match=r"the gateway's address of broker \d is gw\.example"):
            detect_transparent_mode(listed, GATEWAY)


def test_a_broker_that_has_no_port_at_the_gateway_is_refused() -> None:
    with pytest.raises(KafkaSetupError, match="broker 60000 would need port 69093"):
        detect_transparent_mode({60_000: Address("kafka", 9092)}, GATEWAY)


def test_a_broker_that_does_not_fit_is_left_out_while_running() -> None:
    ours, theirs, too_high = GATEWAY.of(1), Address("two", 9095), Address("high", 9095)
    listed = {1: ours, 2: theirs, 60_000: too_high}

    usable, complaints = split_usable(listed, GATEWAY, is_transparent=True)
    assert usable == {1: ours}
    assert "broker 2 advertises two:9095 to clients" in complaints[0]
    assert "broker 60000 would need port" in complaints[1]

    usable, complaints = split_usable(listed, GATEWAY, is_transparent=False)
    assert usable == {2: theirs}
    assert "broker 1 advertises gw.example:9094, which is the gateway" in complaints[0]


# -- the directory -----------------------------------------------------------------------------------------------------


def test_the_directory_knows_live_brokers_only() -> None:
    directory = BrokerDirectory(GATEWAY)
    directory.update({3: Address("three", 1), 1: Address("one", 1)})

    assert directory.node_ids == (1, 3)
    assert directory.upstream(3) == ("three", 1)
    assert (1 in directory, 2 in directory) == (True, False)
    with pytest.raises(KafkaUnreachable, match="lists no broker 2"):
        directory.upstream(2)
    assert directory.advertised(2) == ("gw.example", 9095)


def test_actions_are_called_after_changes_and_only_then() -> None:
    directory = BrokerDirectory(GATEWAY)
    seen: list[tuple[int, ...]] = []

    def fails() -> None:
        raise ValueError("of an action")

    directory.on_changed(fails)
    directory.on_changed(lambda: seen.append(tuple(directory.node_ids)))
    directory.update({1: Address("one", 1)})
    directory.update({1: Address("one", 1)})
    directory.update({1: Address("moved", 1)})
    directory.update({1: Address("moved", 1), 2: Address("two", 1)})
    directory.update({2: Address("two", 1)})

    assert seen == [(1,), (1,), (1, 2), (2,)]
