"""`group.bootstrap.servers`: which settings are for the servers of the groups, and which for the brokers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import Admin, Consumer, Member
from holdfast.client.addresses import Address
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.errors import ConfigError, ConnectionFailed
from holdfast.client.group_servers import NAMES, without_group_servers
from holdfast.client.member import GroupMember
from holdfast.client.runtime import Runtime
from holdfast.client.settings import NetworkSettings
from tests.support.certificates import make_authority
from tests.unit.client.test_runtime import RefusingTransport, VirtualClock

BROKERS = {"bootstrap.servers": "broker:1", "group.id": "g"}
SPLIT = BROKERS | {"group.bootstrap.servers": "gateway:2, gateway:3"}
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}


def assign_nothing(_members: Sequence[GroupMember]) -> dict[str, Any]:
    return {}


def read(config: dict[str, Any]) -> ConsumerConfig:
    return ConsumerConfig.read(config, {})


def test_the_groups_have_servers_of_their_own() -> None:
    config = read(SPLIT | {"client.id": "me", "request.timeout.ms": 4_000})

    assert config.network.bootstrap == (Address("broker", 1),)
    assert config.group_network.bootstrap == (Address("gateway", 2), Address("gateway", 3))
    for network in (config.network, config.group_network):
        assert (network.client_id, network.request_timeout_s) == ("me", 4.0)


def test_without_the_setting_the_groups_are_on_the_brokers() -> None:
    config = read(BROKERS)

    assert config.group_network is config.network


def test_the_setting_can_be_a_keyword() -> None:
    config = ConsumerConfig.read(BROKERS, {"group_bootstrap_servers": "gateway:2", "group_sasl_username": "bob"})

    assert config.group_network.bootstrap == (Address("gateway", 2),)


def test_an_alias_of_bootstrap_servers_does_not_replace_the_servers_of_the_groups() -> None:
    config = read({"metadata.broker.list": "broker:1", "group.id": "g", "group.bootstrap.servers": "gateway:2"})

    assert config.network.bootstrap == (Address("broker", 1),)
    assert config.group_network.bootstrap == (Address("gateway", 2),)


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ("", "group.bootstrap.servers names no broker"),
        (None, "group.bootstrap.servers is missing"),
        ("gateway:x", "group.bootstrap.servers has 'gateway:x', which is not host:port: 'x' is no port"),
        ("SSL://gateway:2", "group.bootstrap.servers has 'SSL://gateway:2', but security.protocol is PLAINTEXT"),
    ],
)
def test_a_wrong_address_is_reported_with_the_setting(servers: Any, said: str) -> None:
    """Also an empty one: a consumer that joined at the brokers instead would split its group."""
    for make in (Consumer, Admin, lambda config: Member(config, "shards", {"p": {}}, assign_nothing)):
        own = {} if make is Admin else {"group.id": "g"}
        with pytest.raises(ConfigError) as raised:
            make({"bootstrap.servers": "broker:1", "group.bootstrap.servers": servers} | own)
        assert said in str(raised.value)


def test_a_misspelt_setting_is_refused_with_the_right_name() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'group\.bootstrap\.servers'"):
        read(BROKERS | {"group.bootstrap.server": "gateway:2"})


def test_a_member_needs_no_broker_but_the_servers_of_its_group() -> None:
    Member({"group.bootstrap.servers": "gateway:2", "group.id": "g"}, "shards", {"p": {}}, assign_nothing).close()

    with pytest.raises(ConfigError, match=r"^bootstrap\.servers is missing"):
        read({"group.bootstrap.servers": "gateway:2", "group.id": "g"})


def test_an_unreachable_server_is_reported_with_the_setting() -> None:
    runtime = Runtime(VirtualClock(), RefusingTransport)
    config = read(SPLIT)
    brokers = ClusterClient(config.network, runtime=runtime)
    groups = brokers.for_groups(config.group_network)

    with pytest.raises(ConnectionFailed, match=r"^no broker of group\.bootstrap\.servers can be reached: .*gateway:2"):
        groups.find_coordinator("g", groups.clock.now() + 5)
    with pytest.raises(ConnectionFailed, match=r"^no broker can be reached: .*broker:1"):
        brokers.metadata((), brokers.clock.now() + 5)


# -- security ----------------------------------------------------------------------------------------------------------


def test_both_have_the_same_security() -> None:
    config = read(SPLIT | SASL | {"sasl.password": "hush"})

    assert config.group_network.security == config.network.security
    assert config.group_network.security.sasl is not None


def test_security_with_the_prefix_is_for_the_groups_alone() -> None:
    own = {"group.sasl.mechanism": "SCRAM-SHA-512", "group.sasl.username": "bob", "group.sasl.password": "bobs"}
    config = read(SPLIT | SASL | {"sasl.password": "hush"} | own)
    records, groups = config.network.security.sasl, config.group_network.security.sasl

    assert records is not None and (records.mechanism, records.username, records.password) == ("PLAIN", "alice", "hush")
    assert groups is not None and (groups.mechanism, groups.username, groups.password) == (
        "SCRAM-SHA-512",
        "bob",
        "bobs",
    )
    assert "bobs" not in repr(config)


@pytest.mark.parametrize("given", ["sasl.mechanism", "sasl.mechanisms"])
@pytest.mark.parametrize("override", ["sasl.mechanism", "sasl.mechanisms"])
def test_an_override_also_replaces_other_names_for_the_same_thing(given: str, override: str) -> None:
    shared = {"security.protocol": "SASL_PLAINTEXT", given: "PLAIN", "sasl.username": "a", "sasl.password": "b"}
    config = read(SPLIT | shared | {f"group.{override}": "SCRAM-SHA-256"})

    assert config.group_network.security.sasl is not None
    assert config.group_network.security.sasl.mechanism == "SCRAM-SHA-256"


def test_the_groups_do_not_trust_an_authority_that_was_replaced(tmp_path: Path) -> None:
    """Both settings together mean that both authorities are trusted."""
    mine, other = make_authority(tmp_path), make_authority(tmp_path, "other")
    tls = {"security.protocol": "SSL", "ssl.ca.pem": mine.certificate.read_text()}
    config = read(SPLIT | tls | {"group.ssl.ca.location": str(other.certificate)})
    context = config.group_network.security.tls

    assert context is not None
    assert len(context.get_ca_certs()) == 1
    assert context.get_ca_certs(binary_form=True) != config.network.security.tls.get_ca_certs(binary_form=True)  # type: ignore[union-attr]


def test_the_groups_can_have_another_protocol() -> None:
    config = read(SPLIT | SASL | {"sasl.password": "hush", "group.security.protocol": "PLAINTEXT"})

    assert config.network.security.protocol == "SASL_PLAINTEXT"
    assert (config.group_network.security.protocol, config.group_network.security.sasl) == ("PLAINTEXT", None)


def test_a_mistake_in_the_security_of_the_groups_says_whose_it_is() -> None:
    with pytest.raises(ConfigError, match=r"^group\.bootstrap\.servers: sasl\.mechanism is missing"):
        read(SPLIT | {"group.security.protocol": "SASL_PLAINTEXT"})


def test_security_of_the_groups_needs_their_servers() -> None:
    with pytest.raises(ConfigError, match=r"^group\.sasl\.password needs group\.bootstrap\.servers"):
        read(BROKERS | {"group.sasl.username": "bob", "group.sasl.password": "bobs"})


# -- clients that only read records ------------------------------------------------------------------------------------


def test_nothing_of_the_groups_servers_reaches_librdkafka() -> None:
    config = read(SPLIT | {"group.security.protocol": "PLAINTEXT"})

    assert config.librdkafka["bootstrap.servers"] == "broker:1"
    assert not NAMES & config.librdkafka.keys()


def test_the_rest_is_left_for_a_client_that_only_reads() -> None:
    assert without_group_servers(SPLIT | {"group.sasl.username": "bob"}) == BROKERS


def test_settings_without_the_network_are_refused_by_their_own_names() -> None:
    with pytest.raises(ConfigError, match=r"^request\.timeout\.ms is 'soon'"):
        NetworkSettings.of_groups(SPLIT | {"request.timeout.ms": "soon"})
