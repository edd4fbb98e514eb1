"""The settings of the network: what is taken, what is refused, and that confluent-kafka agrees."""

import confluent_kafka
import pytest

from holdfast.client.addresses import Address
from holdfast.client.errors import ConfigError
from holdfast.client.settings import _LIMITS, NetworkSettings


def test_settings_by_kafkas_names() -> None:
    settings = NetworkSettings.from_config(
        {
            "bootstrap.servers": "a:1,b:2",
            "client.id": "me",
            "socket.connection.setup.timeout.ms": 2000,
            "request.timeout.ms": "3000",
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 70,
            "receive.message.max.bytes": 5000,
            "group.id": "somebody else's",
        }
    )
    assert settings == NetworkSettings(
        (Address("a", 1), Address("b", 2)),
        "me",
        connection_setup_timeout_s=2.0,
        request_timeout_s=3.0,
        reconnect_backoff_s=0.005,
        reconnect_backoff_max_s=0.05,
        retry_backoff_s=0.07,
        max_response_bytes=5000,
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"bootstrap.servers": None}, "bootstrap.servers is missing"),
        ({"request.timeout.ms": "soon"}, "request.timeout.ms is 'soon'; it must be a whole number from 1 to 900000"),
        ({"request.timeout.ms": 0}, "request.timeout.ms is 0"),
        ({"request.timeout.ms": 1.5}, "request.timeout.ms is 1.5"),
        ({"retry.backoff.ms": True}, "retry.backoff.ms is True"),
        ({"reconnect.backoff.ms": 100, "reconnect.backoff.max.ms": 99}, "reconnect.backoff.max.ms must not be below"),
        ({"broker.address.family": "v5"}, "broker.address.family is 'v5'"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        NetworkSettings.from_config({"bootstrap.servers": "a:1"} | wrong)


OTHERS = {"reconnect.backoff.ms": 0, "reconnect.backoff.max.ms": 3_600_000}
"""The longest back-off must not be below the shortest."""


def librdkafka_takes(name: str, value: int) -> bool:
    """Whether confluent-kafka, which gets the same settings for the records, takes this one.

    A producer is asked: a consumer has further rules, between the sizes of fetches and of messages.
    """
    try:
        confluent_kafka.Producer({"log_level": 0} | OTHERS | {name: value})
    except confluent_kafka.KafkaException:
        return False
    return True


def we_take(name: str, value: int) -> bool:
    try:
        NetworkSettings.from_config({"bootstrap.servers": "a:1"} | OTHERS | {name: value})
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("name", _LIMITS)
def test_the_limits_of_numbers_are_librdkafkas(name: str) -> None:
    lowest, highest = _LIMITS[name]
    for value in (lowest - 1, lowest, highest, highest + 1):
        expected = lowest <= value <= highest
        assert (we_take(name, value), librdkafka_takes(name, value)) == (expected, expected), value
