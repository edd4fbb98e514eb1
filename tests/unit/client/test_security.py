"""TLS and SASL settings: what is taken, what is refused, and that confluent-kafka agrees."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from holdfast.client.errors import ConfigError
from holdfast.client.security import NAMES, SECRETS, Security
from tests.support.certificates import KEY_PASSWORD, Certificate, make_authority

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
USER = {"sasl.username": "alice", "sasl.password": "hunter2"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Certificate, Certificate]:
    """An authority's certificate, and two clients that it signed."""
    authority = make_authority(tmp_path_factory.mktemp("certificates"))
    return authority.certificate, authority.sign("client", "DNS:client"), authority.sign("other", "DNS:other")


def librdkafka_takes(config: dict[str, Any]) -> bool:
    """Whether confluent-kafka, which gets the same settings for the records, makes a consumer of them."""
    try:
        consumer = confluent_kafka.Consumer({"group.id": "g", "log_level": 0} | config)
    except confluent_kafka.KafkaException:
        return False
    consumer.close()
    return True


# -- what is taken -----------------------------------------------------------------------------------------------------


def test_nothing_said_is_plaintext() -> None:
    security = Security.from_config({"bootstrap.servers": "a:1", "group.id": "g"})
    assert security == Security("PLAINTEXT")
    assert (security.tls, security.sasl) == (None, None)


@pytest.mark.parametrize(
    "config",
    [
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "plaintext"},
        {"security.protocol": "ssl"},
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"},
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "https"},
        {"security.protocol": "SSL", "ssl.ca.location": "probe"},
        {"security.protocol": "SSL", "ssl.cipher.suites": "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384"},
        {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"},
        {"security.protocol": "SSL", "enable.ssl.certificate.verification": False},
        {"security.protocol": "SSL", "enable.ssl.certificate.verification": "1"},
        SASL | USER,
        {"security.protocol": "sasl_ssl", "sasl.mechanisms": "SCRAM-SHA-256"} | USER,
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"} | USER,
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: ("t", 9e9)},
    ],
)
def test_what_we_take_librdkafka_takes_too(config: dict[str, Any]) -> None:
    security = Security.from_config(config)
    assert security.protocol == config["security.protocol"].upper()
    assert (security.tls is not None, security.sasl is not None) == (
        security.protocol.endswith("SSL"),
        security.protocol.startswith("SASL"),
    )
    assert librdkafka_takes(config)


@pytest.mark.parametrize("form", ["location", "pem"])
@pytest.mark.parametrize("encrypted", [False, True], ids=["open key", "encrypted key"])
def test_certificates_are_taken_from_files_and_from_text(
    certificates: tuple[Path, Certificate, Certificate], form: str, encrypted: bool
) -> None:
    authority, client, _ = certificates
    key = client.encrypted_key if encrypted else client.key
    given = {"ssl.ca": authority, "ssl.certificate": client.certificate, "ssl.key": key}
    config = {
        f"{name}.{form}": str(path) if form == "location" else path.read_text() for name, path in given.items()
    } | {"security.protocol": "SSL"}
    if encrypted:
        config["ssl.key.password"] = KEY_PASSWORD
    security = Security.from_config(config)
    assert security.tls is not None
    assert security.tls.cert_store_stats()["x509_ca"] == 1
    assert librdkafka_takes(config)


@pytest.mark.parametrize(
    ("settings", "checks_name", "checks_certificate"),
    [
        ({}, True, True),
        ({"ssl.endpoint.identification.algorithm": "none"}, False, True),
        ({"enable.ssl.certificate.verification": "false"}, False, False),
    ],
)
def test_what_is_verified(settings: dict[str, str], checks_name: bool, checks_certificate: bool) -> None:
    tls = Security.from_config({"security.protocol": "SSL"} | settings).tls
    assert tls is not None
    assert (tls.check_hostname, tls.verify_mode.name) == (
        checks_name,
        "CERT_REQUIRED" if checks_certificate else "CERT_NONE",
    )


def test_a_directory_of_authorities_is_taken(tmp_path: Path) -> None:
    assert Security.from_config({"security.protocol": "SSL", "ssl.ca.location": str(tmp_path)}).tls is not None


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"security.protocol": "TLS"},
            "security.protocol is 'TLS'; it can be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
        ),
        ({"security.protocol": 7}, "security.protocol must be text, not int"),
        ({"security.protocol": "SASL_SSL"} | USER, "sasl.mechanism is missing"),
        (SASL | USER | {"sasl.mechanism": "GSSAPI"}, "sasl.mechanism is 'GSSAPI'; supported are PLAIN"),
        (SASL | USER | {"sasl.mechanism": "plain"}, "sasl.mechanism is 'plain'"),
        (SASL | {"sasl.password": "hunter2"}, "sasl.username is missing"),
        (SASL | {"sasl.username": "alice"}, "sasl.password is missing"),
        (SASL | USER | {"sasl.password": "hunter2\0"}, "sasl.password has a null character"),
        (SASL | USER | {"sasl.password": b"hunter2"}, "sasl.password must be text, not bytes"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "oauth_cb is missing"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "http"}, "it can be https or none"),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "maybe"}, "it can be true or false"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "ROT13"}, "ssl.cipher.suites has no cipher"),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/no/such/file"},
            "ssl.ca.location: cannot read",
        ),
        ({"security.protocol": "SSL", "ssl.ca.pem": "nonsense"}, "ssl.ca.pem has no certificates"),
        ({"security.protocol": "SSL", "ssl.key.pem": "hunter2"}, "ssl.certificate.location is missing"),
        ({"security.protocol": "SSL", "ssl.certificate.pem": "x"}, "ssl.key.location is missing"),
        (
            {"security.protocol": "SSL", "ssl.key.location": "/no/such/key", "ssl.certificate.pem": "x"},
            "ssl.key.location: cannot read '/no/such/key': No such file",
        ),
        ({"security.protocol": "SSL", "ssl.key.pem": "hunter2", "ssl.certificate.pem": "x"}, "cannot use the key"),
        ({"ssl.keystore.location": "x.p12"}, "ssl.keystore.location is not supported: give ssl.certificate.location"),
        ({"ssl.truststore.location": "x"}, "give ssl.ca.location, as PEM"),
        ({"sasl.jaas.config": "x"}, "sasl.jaas.config is not supported: give sasl.username"),
        ({"sasl.user": "x"}, "sasl.user is not supported: did you mean sasl.username?"),
        ({"ssl.crl.location": "x"}, "ssl.crl.location is not supported"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused_by_name_and_without_secrets(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Security.from_config(config)
    assert said in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert raised.value.fatal


Spoil = Callable[[dict[str, str], Certificate], None]


def _other_key(config: dict[str, str], other: Certificate) -> None:
    config["ssl.key.location"] = str(other.key)


def _wrong_password(config: dict[str, str], _: Certificate) -> None:
    config["ssl.key.password"] = "hunter2"


def _no_password(config: dict[str, str], _: Certificate) -> None:
    del config["ssl.key.password"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_other_key, "does not belong to the certificate in ssl.certificate.location"),
        (_wrong_password, "ssl.key.password does not open the key in ssl.key.location"),
        (_no_password, "ssl.key.password is missing: the key in ssl.key.location is encrypted"),
    ],
)
def test_a_key_that_does_not_fit_is_refused_without_a_terminal_prompt(
    certificates: tuple[Path, Certificate, Certificate], spoil: Spoil, said: str
) -> None:
    _, client, other = certificates
    config = {
        "security.protocol": "SSL",
        "ssl.certificate.location": str(client.certificate),
        "ssl.key.location": str(client.encrypted_key),
        "ssl.key.password": KEY_PASSWORD,
    }
    assert Security.from_config(config).tls is not None
    spoil(config, other)
    with pytest.raises(ConfigError) as raised:
        Security.from_config(config)
    assert said in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_secrets_are_never_shown() -> None:
    security = Security.from_config(SASL | USER)
    assert "alice" in repr(security)
    assert "hunter2" not in repr(security)
    bearer = Security.from_config(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: ("hunter2", 0.0),
            "sasl.oauthbearer.config": "client_secret=hunter2",
        }
    )
    assert "hunter2" not in repr(bearer)
    assert SECRETS < NAMES
