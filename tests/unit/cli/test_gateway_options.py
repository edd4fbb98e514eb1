"""`holdfast gateway` on the command line: what it takes, what it says, and how it ends."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.cli.gateway.serve import gateway_config
from holdfast.cli.main import build_parser, main
from holdfast.gateway.config import GatewayConfig
from holdfast.gateway.server import GatewayError


def config_of(*arguments: str) -> GatewayConfig:
    return gateway_config(build_parser("gateway").parse_args(["gateway", *arguments]))


# -- what it takes -----------------------------------------------------------------------------------------------------


def test_the_short_form_needs_only_kafka() -> None:
    config = config_of("--kafka", "broker1:9095")
    assert (config.kafka, config.listen, config.advertise) == (
        "broker1:9095",
        ("127.0.0.1", 9092),
        ("127.0.0.1", 9092),
    )
    assert (dict(config.client_properties), config.create_state) == ({}, False)
    assert config.broker_config.security.users_file is None


def test_every_option_has_its_place(tmp_path: Path) -> None:
    properties = tmp_path / "to-kafka.properties"
    properties.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=gw\nsasl.password=s\n")
    toml = tmp_path / "groups.toml"
    toml.write_text('"group.max.size" = 7\n"offsets.retention.minutes" = 5\n')
    config = config_of(
        *("--kafka", "1=broker1:9095,2=broker2:9095"),
        *("--listen", "0.0.0.0:9092", "--advertise", "gw1.example:19092"),
        *("--kafka-config", str(properties), "--kafka-set", "sasl.mechanism=SCRAM-SHA-512"),
        *("--config", str(toml), "--set", "group.max.size=9", "--set", "max.connections=11"),
        *("--users-file", "users.toml", "--create-state"),
    )
    assert (config.listen, config.advertise) == (("0.0.0.0", 9092), ("gw1.example", 19092))
    assert dict(config.client_properties) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "gw",
        "sasl.password": "s",
    }
    broker = config.broker_config
    assert (broker.group_max_size, broker.offsets_retention_minutes, broker.max_connections) == (9, 5, 11)
    assert (broker.security.users_file, config.create_state) == (Path("users.toml"), True)
    assert str(broker.listener) == "PLAINTEXT://0.0.0.0:9092"
    assert str(broker.advertised_listeners["PLAINTEXT"]) == "PLAINTEXT://gw1.example:19092"


def test_the_listener_of_clients_may_have_tls() -> None:
    config = config_of(
        *("--kafka", "k:1", "--listen", "SSL://[::1]:9092", "--advertise", "gw:9092"),
        *("--set", "ssl.certificate.location=gw.pem", "--set", "ssl.key.location=gw.key"),
    )
    assert config.listen == ("::1", 9092)
    tls = config.broker_config.security.listeners["SSL"].tls
    assert tls is not None and tls.certificate == Path("gw.pem")
    assert str(config.broker_config.advertised_listeners["SSL"]) == "SSL://gw:9092"


def test_the_file_for_kafka_may_name_its_brokers(tmp_path: Path) -> None:
    properties = tmp_path / "to-kafka.properties"
    properties.write_text("bootstrap.servers=k:1\nclient.id=gw\n")
    config = config_of("--kafka-config", str(properties))
    assert (config.kafka, dict(config.client_properties)) == ("k:1", {"client.id": "gw"})
    assert config_of("--kafka-config", str(properties), "--kafka", "k:2").kafka == "k:2"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no Kafka broker is named: give --kafka HOST:PORT, an address for each broker"),
        (["--kafka", "k:1", "--listen", "localhost"], "'localhost' is not HOST:PORT"),
        (["--kafka", "k:1", "--listen", "a:1,b:2"], "'a:1,b:2' is not HOST:PORT"),
        (["--kafka", "k:1", "--listen", "h:0"], "'h:0' has port 0, but the ports of the brokers follow this one"),
        (["--kafka", "k:1", "--listen", "SASL_SSL://h:1"], "passes on to Kafka: give SSL://HOST:PORT"),
        (["--kafka", "k:1", "--listen", "SASL_PLAINTEXT://h:1"], "passes on to Kafka: give HOST:PORT"),
        (["--kafka", "k:1", "--listen", "SSL://h:1"], "needs a certificate"),
        (["--kafka", "k:1", "--listen", "0.0.0.0:9092"], "no client can connect to 0.0.0.0:9092: give --advertise"),
        (["--kafka", "k:1", "--listen", ":9092"], "no client can connect to 0.0.0.0:9092: give --advertise"),
        (["--kafka", "k:1", "--advertise", "0.0.0.0:9092"], "is no address that a client can connect to"),
        (["--kafka", "k:1", "--advertise", "h:0"], "is no address that a client can connect to"),
        (["--kafka", "k:1", "--advertise", "SSL://h:1"], "is not HOST:PORT: clients get it without a protocol"),
        (["--kafka", "k:1", "--set", "listeners=PLAINTEXT://h:1"], "listeners cannot be set with --set: give --listen"),
        (["--kafka", "k:1", "--set", "advertised.listeners=x"], "cannot be set with --set: give --advertise"),
        (["--kafka", "k:1", "--set", "group.max.sise=1"], 'did you mean "group.max.size"?'),
        (["--kafka", "k:1", "--set", "group.max.size=x"], "Invalid value x for configuration group.max.size"),
        (["--kafka", "k:1", "--kafka-set", "security.protocol"], "is not of the form NAME=VALUE"),
        (["--kafka", "k:1", "--kafka-set", "sasl.pasword=x"], "did you mean sasl.password?"),
        (["--kafka", "k:1", "--kafka-config", "nowhere.properties"], "cannot read nowhere.properties"),
    ],
)
def test_a_bad_option_is_one_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    try:
        code = main(["gateway", *arguments])
    except SystemExit as ended:  # argparse leaves this way
        code = int(ended.code or 0)
    output = capsys.readouterr()
    assert (code, output.out, output.err.count("\n")) == (2, "", 1), output.err
    assert output.err.startswith("holdfast gateway: ")
    assert said in output.err


# -- how it lives and ends ---------------------------------------------------------------------------------------------


class FakeGateway:
    """Starts and ends as a test says. `steps` is what happened to it."""

    steps: ClassVar[list[str]] = []
    sigterm_during: ClassVar[str] = "run"
    start_error: ClassVar[str | None] = None
    failure: ClassVar[str | None] = None

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config

    async def start(self) -> None:
        self.steps.append("start")
        if self.start_error is not None:
            raise GatewayError(self.start_error)
        if self.sigterm_during == "start":
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()
        self.steps.append("started")

    async def failed(self) -> str:
        if self.failure is None:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()
        assert self.failure is not None
        return self.failure

    async def stop(self) -> None:
        self.steps.append("stop")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeGateway]:
    class Fake(FakeGateway):
        steps: ClassVar[list[str]] = []

    monkeypatch.setattr("holdfast.gateway.server.Gateway", Fake)
    return Fake


COMMAND = ["gateway", "--kafka", "k:1", "--listen", "127.0.0.1:19092"]


def test_it_serves_until_a_signal_and_ends_with_exit_code_0(
    fake: type[FakeGateway], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(COMMAND) == 0
    assert capsys.readouterr().out == "holdfast gateway listening on 127.0.0.1:19092\n"
    assert fake.steps == ["start", "started", "stop"]


def test_a_signal_while_it_starts_ends_it_too(fake: type[FakeGateway], capsys: pytest.CaptureFixture[str]) -> None:
    """Its start waits for Kafka, maybe for a long time."""
    fake.sigterm_during = "start"
    assert main(COMMAND) == 0
    assert capsys.readouterr().out == ""
    assert fake.steps == ["start", "stop"]


def test_a_start_that_fails_is_one_sentence_and_exit_code_2(
    fake: type[FakeGateway], capsys: pytest.CaptureFixture[str]
) -> None:
    fake.start_error = "cannot listen on 127.0.0.1:19092: Address already in use"
    assert main(COMMAND) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"holdfast gateway: {fake.start_error}\n")
    assert fake.steps == ["start", "stop"]


def test_a_gateway_that_must_stop_says_why_and_ends_with_exit_code_1(
    fake: type[FakeGateway], capsys: pytest.CaptureFixture[str]
) -> None:
    fake.failure = "the state topic was deleted"
    assert main(COMMAND) == 1
    output = capsys.readouterr()
    assert output.out == "holdfast gateway listening on 127.0.0.1:19092\n"
    assert output.err.endswith("holdfast gateway: the state topic was deleted\n")
    assert fake.steps == ["start", "started", "stop"]
