"""The broker's configuration under Kafka's names."""

import logging
from pathlib import Path

import pytest

from holdfast.broker.config.broker import BROKER_KEYS, EFFECTIVE_NAMES, BrokerConfig, ConfigError, load_config

HOUR_MS = 3_600_000


def refusal(*sets: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(None, sets)
    sentence = str(refused.value)
    assert "\n" not in sentence
    return sentence


def listen(config: BrokerConfig) -> tuple[str, int]:
    return config.listener.host, config.listener.port


def toml(directory: Path, text: str) -> Path:
    file = directory / "holdfast.toml"
    file.write_text(text)
    return file


# -- defaults ----------------------------------------------------------------------------------------------------------


def test_the_default_configuration_is_what_no_file_and_no_option_make() -> None:
    assert load_config(None, []) == BrokerConfig()


def test_defaults_are_kafkas_except_where_holdfast_says_so() -> None:
    config = BrokerConfig()
    assert (config.num_partitions, config.message_max_bytes, config.log_segment_bytes) == (1, 1048588, 1024**3)
    assert (config.log_retention_ms, config.log_roll_ms) == (168 * HOUR_MS, 168 * HOUR_MS)
    assert (config.node_id, listen(config), config.flush) == (1, ("127.0.0.1", 9092), "os")
    assert config.queued_max_request_bytes == 256 * 1024**2
    assert config.group_initial_rebalance_delay_ms == 0, "as Kafka's server.properties, not as its code"


def test_every_default_of_the_table_is_a_value_that_its_own_name_takes() -> None:
    assert len(BROKER_KEYS) > 350
    for key in BROKER_KEYS.values():
        if key.default is not None:
            key.parse(key.default)


def test_every_name_said_to_have_an_effect_is_a_known_name() -> None:
    assert set(BROKER_KEYS) >= EFFECTIVE_NAMES


# -- where values come from --------------------------------------------------------------------------------------------


def test_a_file_may_quote_dotted_names_or_nest_tables(tmp_path: Path) -> None:
    quoted = toml(tmp_path, '"log.segment.bytes" = 2000000\n"auto.create.topics.enable" = false\n')
    from_quoted = load_config(quoted)
    nested = toml(tmp_path, "[log.segment]\nbytes = 2000000\n[auto.create.topics]\nenable = false\n")
    from_nested = load_config(nested)

    assert from_quoted == from_nested
    assert (from_quoted.log_segment_bytes, from_quoted.auto_create_topics_enable) == (2000000, False)


def test_a_list_in_a_file_may_be_an_array(tmp_path: Path) -> None:
    file = toml(tmp_path, '"log.cleanup.policy" = ["compact", "delete"]\n')
    assert load_config(file).log_cleanup_policy == ("compact", "delete")


def test_later_settings_win_and_all_of_them_over_the_file(tmp_path: Path) -> None:
    file = toml(tmp_path, '"num.partitions" = 2\n"node.id" = 7\n')
    config = load_config(file, ["num.partitions=3", "num.partitions=4"])
    assert (config.num_partitions, config.node_id) == (4, 7)


def test_a_value_may_contain_an_equals_sign() -> None:
    assert load_config(None, ["broker.rack=a=b"]).broker_rack == "a=b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("num.partitions 3", "not valid TOML"),
        ('"num.partitions" = 1979-05-27', "num.partitions"),
        ('"log.segment.bytes" = 2000000\n[log.segment]\nbytes = 3000000', "set twice"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    file = toml(tmp_path, text)
    with pytest.raises(ConfigError, match=said):
        load_config(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file or directory"):
        load_config(tmp_path / "nowhere.toml")


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("log.segmnt.bytes", "log.segment.bytes"),
        ("retention.ms", "log.retention.ms"),
        ("NUM.partitions", "num.partitions"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(wrong: str, right: str) -> None:
    assert refusal(f"{wrong}=1") == f'"{wrong}" is not a broker config; did you mean "{right}"?'


def test_a_name_like_no_other_is_refused_without_a_guess() -> None:
    assert refusal("qqqq=1") == '"qqqq" is not a broker config, nor is anything like it'


def test_a_setting_without_an_equals_sign_is_refused() -> None:
    assert refusal("num.partitions") == '"num.partitions" is not of the form name=value'


def test_names_without_effect_are_logged_once_together_and_those_with_effect_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="holdfast.broker.config.broker"):
        load_config(None, ["num.io.threads=3", "background.threads=4", "num.partitions=2"])
    assert [record.getMessage() for record in caplog.records] == [
        "without effect in Holdfast: background.threads, num.io.threads"
    ]


@pytest.mark.parametrize(
    "setting",
    [
        "ssl.keystore.location=/keys",
        "sasl.enabled.mechanisms=PLAIN",
        "super.users=User:admin",
        "listener.name.plaintext.sasl.enabled.mechanisms=PLAIN",
        "security.inter.broker.protocol=SASL_SSL",
    ],
)
def test_a_setting_meant_to_protect_the_broker_is_warned_about(caplog: pytest.LogCaptureFixture, setting: str) -> None:
    load_config(None, [setting])
    [warning] = caplog.records
    assert warning.levelno == logging.WARNING
    assert "NOT protected" in warning.getMessage()
    assert setting.partition("=")[0] in warning.getMessage()


def test_a_secret_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        load_config(None, ["ssl.keystore.password=hunter2", "listener.name.x.ssl.key.password=hunter2"])
    assert "ssl.keystore.password" in caplog.text
    assert "hunter2" not in caplog.text


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("num.partitions=abc", "Not a number of type INT"),
        ("num.partitions=1_0", "Not a number of type INT"),
        ("num.partitions=", "Not a number of type INT"),
        ("log.segment.bytes=5000000000", "Not a number of type INT"),
        ("num.partitions=0", "Value must be at least 1"),
        ("log.segment.bytes=1", "Value must be at least 1048576"),
        ("auto.create.topics.enable=yes", "Expected value to be either true or false"),
        ("log.message.timestamp.type=Never", "String must be one of: CreateTime, LogAppendTime"),
        ("compression.gzip.level=0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.zstd.level=23", "Value must be no more than 22"),
        ("log.cleaner.min.cleanable.ratio=nan", "Value must be at least 0"),
        ("log.roll.ms=0", "Value must be at least 1"),
        ("broker.id=-1", "Value must be at least 0"),
        ("flush=sometimes", "String must be one of: os, always, interval"),
    ],
)
def test_a_bad_value_is_refused_with_name_value_and_what_is_expected(setting: str, reason: str) -> None:
    name, _, value = setting.partition("=")
    assert refusal(setting) == f"Invalid value {value} for configuration {name}: {reason}"


def test_a_value_without_effect_is_checked_all_the_same() -> None:
    assert "num.io.threads" in refusal("num.io.threads=many")


def test_settings_that_contradict_each_other_are_refused() -> None:
    assert "contradict" in refusal("node.id=1", "broker.id=2")
    assert "log.retention" in refusal("log.retention.ms=0")
    assert "group.max.session.timeout.ms" in refusal("group.min.session.timeout.ms=9", "group.max.session.timeout.ms=8")
    assert "socket.request.max.bytes" in refusal("queued.max.request.bytes=1000")
    assert "keeps its data in one" in refusal("log.dirs=/a,/b")


def test_the_default_bound_on_requests_makes_room_for_the_largest_one() -> None:
    assert load_config(None, ["socket.request.max.bytes=500000000"]).queued_max_request_bytes == 500000000


def test_requests_without_a_bound_on_their_memory_can_still_be_asked_for() -> None:
    assert load_config(None, ["queued.max.request.bytes=-1"]).queued_max_request_bytes == -1


# -- names for one thing -----------------------------------------------------------------------------------------------


def test_broker_id_is_the_old_name_of_node_id() -> None:
    assert load_config(None, ["broker.id=5"]).node_id == 5
    assert load_config(None, ["broker.id=5", "node.id=5"]).node_id == 5


@pytest.mark.parametrize(
    ("sets", "retention_ms"),
    [
        (["log.retention.hours=1"], HOUR_MS),
        (["log.retention.hours=1", "log.retention.minutes=2"], 120_000),
        (["log.retention.ms=3", "log.retention.hours=1", "log.retention.minutes=2"], 3),
        (["log.retention.hours=-1"], -1),
        (["log.retention.ms=-1", "log.retention.hours=1"], -1),
    ],
)
def test_the_finer_unit_of_retention_wins(sets: list[str], retention_ms: int) -> None:
    assert load_config(None, sets).log_retention_ms == retention_ms


def test_the_finer_unit_of_rolling_wins() -> None:
    assert load_config(None, ["log.roll.hours=2"]).log_roll_ms == 2 * HOUR_MS
    assert load_config(None, ["log.roll.hours=2", "log.roll.ms=5"]).log_roll_ms == 5


@pytest.mark.parametrize(
    ("sets", "flush", "interval_ms"),
    [
        ([], "os", 1000),
        (["log.flush.interval.messages=1"], "always", 1000),
        (["log.flush.interval.messages=100"], "os", 1000),
        (["log.flush.interval.ms=50"], "interval", 50),
        (["log.flush.scheduler.interval.ms=60"], "interval", 60),
        (["log.flush.interval.ms=50", "log.flush.interval.messages=1"], "always", 50),
        (["flush=os", "log.flush.interval.messages=1"], "os", 1000),
        (["flush=interval"], "interval", 1000),
        ([f"log.flush.interval.ms={2**63 - 1}"], "os", 1000),
    ],
)
def test_flush_follows_from_kafkas_names_unless_it_is_said(sets: list[str], flush: str, interval_ms: int) -> None:
    config = load_config(None, sets)
    assert (config.flush, config.log_flush_interval_ms) == (flush, interval_ms)


def test_the_data_directory_may_have_kafkas_name_and_the_command_lines_wins() -> None:
    config = load_config(None, ["log.dir=/old", "log.dirs=/new"])
    assert config.data_dir == Path("/new")
    assert config.with_data_dir(Path("/a,b")).data_dir == Path("/a,b")


# -- listeners ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("PLAINTEXT://localhost:9092", ("localhost", 9092)),
        ("localhost:0", ("localhost", 0)),
        ("PLAINTEXT://[::1]:9092", ("::1", 9092)),
        ("PLAINTEXT://:9092", ("", 9092)),
        ("plaintext://10.0.0.1:1", ("10.0.0.1", 1)),
    ],
)
def test_a_listener_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert listen(load_config(None, [f"listeners={text}"])) == address


@pytest.mark.parametrize("text", ["localhost", "localhost:99999", "::1:9092", "PLAINTEXT//x:1", "[::1]", "a b:1", ""])
def test_what_is_no_listener_is_refused(text: str) -> None:
    assert "listeners" in refusal(f"listeners={text}")


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_secured_listener_without_its_certificate_or_users_is_refused(protocol: str) -> None:
    needed = "SASL needs users.file" if protocol == "SASL_PLAINTEXT" else "needs a certificate"
    assert needed in refusal(f"listeners={protocol}://127.0.0.1:9093")
    assert needed in refusal("listeners=OUTER://127.0.0.1:9093", f"listener.security.protocol.map=OUTER:{protocol}")


def test_listeners_may_be_several_with_a_name_each() -> None:
    config = load_config(
        None, ["listeners=PLAINTEXT://a:1,INNER://b:2", "listener.security.protocol.map=INNER:PLAINTEXT"]
    )
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://a:1", "INNER://b:2"]
    assert "PLAINTEXT is there 2 times" in refusal("listeners=PLAINTEXT://a:1,PLAINTEXT://b:2")


def test_a_listener_of_any_name_is_served_if_it_is_said_to_be_plaintext() -> None:
    config = load_config(None, ["listeners=OUTER://h:1", "listener.security.protocol.map=OUTER:PLAINTEXT"])
    assert listen(config) == ("h", 1)
    assert "SASL_SSL OUTER is" in refusal("listeners=OUTER://h:1")


def test_the_controllers_listener_of_a_kafka_file_is_passed_over() -> None:
    config = load_config(None, ["listeners=PLAINTEXT://h:1,CONTROLLER://h:2", "controller.listener.names=CONTROLLER"])
    assert listen(config) == ("h", 1)


def test_clients_get_the_advertised_listener() -> None:
    assert not BrokerConfig().advertised_listeners
    config = load_config(None, ["advertised.listeners=PLAINTEXT://kafka.example:19092"])
    assert str(config.advertised_listeners["PLAINTEXT"]) == "PLAINTEXT://kafka.example:19092"
    unknown = refusal("advertised.listeners=OUTER://h:1", "listener.security.protocol.map=OUTER:PLAINTEXT")
    assert "there is no listener OUTER" in unknown


@pytest.mark.parametrize("address", [":9092", "0.0.0.0:9092", "[::]:9092", "h:0"])
def test_an_address_that_no_client_can_connect_to_is_not_advertised(address: str) -> None:
    assert "no client can connect" in refusal(f"advertised.listeners=PLAINTEXT://{address}")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("", False),
        ("h", False),
    ],
)
def test_only_a_loopback_address_counts_as_one(host: str, loopback: bool) -> None:
    assert load_config(None, [f"listeners={host}:1"]).listener.is_loopback is loopback
