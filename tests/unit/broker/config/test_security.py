"""How listeners are guarded, from configs with Kafka's names."""

import logging
import re
from pathlib import Path

import pytest

from holdfast.broker.config.broker import BrokerConfig, ConfigError, load_config, read_file
from holdfast.broker.config.security import ListenerSecurity, TlsSettings
from tests.support.kafka_distribution import REPOSITORY

TLS = ("ssl.certificate.location=c.pem", "ssl.key.location=k.pem")
SASL = ("listeners=SASL_PLAINTEXT://h:1", "users.file=u.json")


def listener(*sets: str) -> ListenerSecurity:
    config = load_config(None, sets)
    return config.security.listeners[config.listener.name]


def refusal(*sets: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(None, sets)
    return str(refused.value)


def test_by_default_nothing_is_asked() -> None:
    assert BrokerConfig().security.listeners == {"PLAINTEXT": ListenerSecurity()}
    assert BrokerConfig().security.users_file is None


def test_a_listener_with_tls() -> None:
    assert listener("listeners=SSL://h:1", *TLS) == ListenerSecurity(
        tls=TlsSettings(certificate=Path("c.pem"), key=Path("k.pem"))
    )
    store = listener(
        "listeners=SSL://h:1", "ssl.keystore.location=both.pem", "ssl.keystore.type=PEM", "ssl.key.password=hunter2"
    )
    assert store.tls == TlsSettings(certificate=Path("both.pem"), key_password="hunter2")
    assert "hunter2" not in repr(store)


def test_a_listener_with_passwords() -> None:
    assert listener(*SASL).mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert listener(*SASL, "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512").mechanisms == ("PLAIN", "SCRAM-SHA-512")


def test_a_config_may_be_for_one_listener_alone() -> None:
    config = load_config(
        None,
        [
            "listeners=SASL_PLAINTEXT://h:1,INNER://h:2",
            "listener.security.protocol.map=INNER:SASL_SSL",
            "users.file=u.json",
            "sasl.enabled.mechanisms=SCRAM-SHA-512",
            "listener.name.inner.sasl.enabled.mechanisms=PLAIN",
            "listener.name.inner.ssl.certificate.location=c.pem",
        ],
    )
    listeners = config.security.listeners
    assert (listeners["SASL_PLAINTEXT"].mechanisms, listeners["INNER"].mechanisms) == (("SCRAM-SHA-512",), ("PLAIN",))
    assert listeners["SASL_PLAINTEXT"].tls is None and listeners["INNER"].tls is not None


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (("listeners=SSL://h:1",), "needs a certificate"),
        (("listeners=SSL://h:1", "ssl.keystore.type=JKS", *TLS), "PEM files only"),
        (("listeners=SSL://h:1", *TLS, "ssl.client.auth=perhaps"), "required, requested, none"),
        (("listeners=SSL://h:1", *TLS, "listener.name.ssl.ssl.client.auth=perhaps"), "required, requested, none"),
        (("listeners=SSL://h:1", *TLS, "ssl.client.auth=required"), "ssl.truststore.location"),
        (("listeners=SSL://h:1", *TLS, "ssl.enabled.protocols=TLSv1.1"), "TLSv1.2 and TLSv1.3"),
        (("listeners=SASL_SSL://h:1", *TLS), "needs users.file"),
        ((*SASL, "sasl.enabled.mechanisms=GSSAPI"), "Holdfast has PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",), "needs users.file"),
        (("super.users=admin",), "expected User:name;User:other"),
        (("allow.everyone.if.no.acl.found=maybe",), "true or false"),
    ],
)
def test_a_promise_that_cannot_be_kept_is_refused(sets: tuple[str, ...], said: str) -> None:
    assert said in refusal(*sets)


def test_super_users_are_separated_by_semicolons() -> None:
    config = load_config(None, ["users.file=u.json", "super.users=User:admin; User:CN=ops,O=us"])
    assert config.security.super_users == ("User:admin", "User:CN=ops,O=us")


def test_what_protects_is_not_warned_about_and_what_does_not_is(caplog: pytest.LogCaptureFixture) -> None:
    load_config(
        None,
        [
            "listeners=SASL_SSL://h:1",
            "users.file=u.json",
            *TLS,
            "listener.name.sasl_ssl.ssl.client.auth=none",
            "super.users=User:admin",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ],
    )
    assert not [record for record in caplog.records if record.levelno == logging.WARNING]
    load_config(None, ["listeners=SSL://h:1", *TLS, "sasl.enabled.mechanisms=PLAIN", "ssl.keystore.password=x"])
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "NOT protected by sasl.enabled.mechanisms, ssl.keystore.password" in warning.getMessage()


def test_the_files_of_the_page_are_taken(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (REPOSITORY / "docs" / "security.md").read_text(), re.DOTALL)
    files = []
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        files.append(read_file(file))
    whole, listeners = files
    assert BrokerConfig.of(whole).security.users_file is not None
    del whole["advertised.listeners"]  # of the one listener that the second file replaces by two
    secured = BrokerConfig.of(whole | listeners).security.listeners
    assert (secured["INTERNAL"], secured["EXTERNAL"].mechanisms) == (ListenerSecurity(), ("SCRAM-SHA-512",))
