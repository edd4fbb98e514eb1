"""The broker's configuration, under Kafka's own names.

Every broker config name of Apache Kafka 4 is accepted, so that a Holdfast broker starts with a file written for Kafka.
The fields of `BrokerConfig` are the configs with an effect. A config without an effect is logged once; an unknown name
is rejected.
"""

from __future__ import annotations

import difflib
import logging
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, cast

from holdfast.broker.config.listeners import Listener, advertised_listeners, client_listeners
from holdfast.broker.config.schema import ConfigError, ConfigKey, ConfigType, Value, read_keys
from holdfast.broker.config.security import (
    ACL_NAMES,
    OWN_KEYS,
    SASL_NAMES,
    TLS_NAMES,
    SecuritySettings,
    security_settings,
    without_effect,
)

__all__ = ["BROKER_KEYS", "MIN_ISR", "OWN_DEFAULTS", "OWN_NAMES", "BrokerConfig", "ConfigError", "load_config"]

logger = logging.getLogger(__name__)

Flush = Literal["os", "always", "interval"]

#: Defaults that differ from Kafka's; docs/differences.md says why.
OWN_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "node.id": "1",
        "broker.id": "1",
        # Kafka binds to every interface. Without authentication, the operator must configure that explicitly.
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dir": "holdfast-data",
        # Kafka has no bound (-1), so clients decide how much memory the broker uses.
        "queued.max.request.bytes": str(256 * 1024 * 1024),
        "process.roles": "broker,controller",
        # As in the server.properties that Kafka ships. The default in its code, 3000, delays the first record of a new
        # group by 3 s.
        "group.initial.rebalance.delay.ms": "0",
        # One broker holds the only replica of each partition.
        "offsets.topic.replication.factor": "1",
        # Kafka's defaults are Java key stores and Kerberos.
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        # Kafka's 512 KiB are for Kerberos tickets; the longest SCRAM message has some hundred bytes.
        "sasl.server.max.receive.size": str(64 * 1024),
    }
)

#: When an acknowledged record is on disk and not only in the page cache. Kafka has no single config for this.
FLUSH_KEY: Final = ConfigKey("flush", ConfigType.STRING, "os", "[os, always, interval]")

#: In Kafka these are in a file of its logging library.
LOGGING_KEYS: Final = (
    ConfigKey("logging.level", ConfigType.STRING, "info", "[debug, info, warning, error]"),
    ConfigKey("logging.format", ConfigType.STRING, "text", "[text, json]"),
)

_OWN_KEYS: Final = {key.name: key for key in (FLUSH_KEY, *LOGGING_KEYS, *OWN_KEYS)}

#: Configs that Kafka does not have.
OWN_NAMES: Final[frozenset[str]] = frozenset(_OWN_KEYS)

BROKER_KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {
        name: replace(key, default=OWN_DEFAULTS.get(name, key.default))
        for name, key in {**read_keys("broker_configs.txt"), **_OWN_KEYS}.items()
    }
)

#: KIP-966: Kafka sets it as a cluster-wide default when a cluster is formatted.
MIN_ISR: Final = "min.insync.replicas"

#: Names in configs of Kafka brokers that are read by plug-ins or quotas, not by the broker itself.
_ALSO_ACCEPTED: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
_ACCEPTED_PREFIXES: Final = ("listener.name.", "ssl.", "sasl.", "config.providers.", "rsm.config.", "rlmm.config.")
_SECURITY: Final = re.compile(
    r"(listener\.name\.[^.]+\.)?(ssl|sasl|authorizer|delegation\.token|security|principal\.builder|super\.users"
    r"|allow\.everyone\.if\.no\.acl\.found)(\..*)?"
)
#: Configs with several names, in Kafka's order of precedence.
_LISTENER_NAMES: Final = (
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "controller.listener.names",
)
_COMBINED_NAMES: Final = (
    "node.id", "broker.id", "broker.rack", "log.dirs", "log.dir", "flush",
    "log.roll.ms", "log.roll.hours",
    "log.retention.ms", "log.retention.minutes", "log.retention.hours",
    "log.flush.interval.ms", "log.flush.scheduler.interval.ms",
)  # fmt: skip
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_NEVER_MS: Final = 2**63 - 1
_DEFAULT_FLUSH_INTERVAL_MS: Final = 1000
_DEFAULT_LISTENERS: Final = client_listeners("listeners", OWN_DEFAULTS)


def _default(name: str) -> Any:  # Any: the annotation of the field says the type
    key = BROKER_KEYS[name]
    assert key.default is not None, f"{name} has no default"
    return key.parse(key.default)


def _setting(name: str) -> Any:
    """A field that is exactly one config."""
    return field(default=_default(name), metadata={"name": name})


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """The configs with an effect. `BrokerConfig()` is the default; `BrokerConfig.of(...)` reads Kafka's names."""

    node_id: int = 1
    listeners: tuple[Listener, ...] = _DEFAULT_LISTENERS
    #: By listener name, if set. Otherwise the listener's own address is advertised, or the host name if that is a
    #: wildcard address.
    advertised_listeners: Mapping[str, Listener] = field(default_factory=lambda: MappingProxyType({}))
    security: SecuritySettings = field(
        default_factory=lambda: security_settings(_DEFAULT_LISTENERS, MappingProxyType({}))
    )
    data_dir: Path = Path("holdfast-data")
    broker_rack: str | None = None

    auto_create_topics_enable: bool = _setting("auto.create.topics.enable")
    delete_topic_enable: bool = _setting("delete.topic.enable")
    num_partitions: int = _setting("num.partitions")
    default_replication_factor: int = _setting("default.replication.factor")

    socket_request_max_bytes: int = _setting("socket.request.max.bytes")
    queued_max_request_bytes: int = _setting("queued.max.request.bytes")
    fetch_max_bytes: int = _setting("fetch.max.bytes")
    max_request_partition_size_limit: int = _setting("max.request.partition.size.limit")
    connections_max_idle_ms: int = _setting("connections.max.idle.ms")
    max_connections: int = _setting("max.connections")
    max_connections_per_ip: int = _setting("max.connections.per.ip")
    sasl_server_max_receive_size: int = _setting("sasl.server.max.receive.size")
    connection_failed_authentication_delay_ms: int = _setting("connection.failed.authentication.delay.ms")
    authentication_timeout_ms: int = _setting("authentication.timeout.ms")
    max_unauthenticated_connections: int = _setting("max.unauthenticated.connections")
    producer_id_expiration_ms: int = _setting("producer.id.expiration.ms")

    message_max_bytes: int = _setting("message.max.bytes")
    compression_type: str = _setting("compression.type")
    log_cleanup_policy: tuple[str, ...] = _setting("log.cleanup.policy")
    log_cleaner_enable: bool = _setting("log.cleaner.enable")
    log_cleaner_backoff_ms: int = _setting("log.cleaner.backoff.ms")
    log_cleaner_dedupe_buffer_size: int = _setting("log.cleaner.dedupe.buffer.size")
    log_cleaner_delete_retention_ms: int = _setting("log.cleaner.delete.retention.ms")
    log_cleaner_min_cleanable_ratio: float = _setting("log.cleaner.min.cleanable.ratio")
    log_cleaner_min_compaction_lag_ms: int = _setting("log.cleaner.min.compaction.lag.ms")
    log_cleaner_max_compaction_lag_ms: int = _setting("log.cleaner.max.compaction.lag.ms")
    log_segment_bytes: int = _setting("log.segment.bytes")
    log_index_interval_bytes: int = _setting("log.index.interval.bytes")
    log_index_size_max_bytes: int = _setting("log.index.size.max.bytes")
    log_retention_bytes: int = _setting("log.retention.bytes")
    log_retention_check_interval_ms: int = _setting("log.retention.check.interval.ms")
    log_message_timestamp_type: str = _setting("log.message.timestamp.type")
    log_message_timestamp_before_max_ms: int = _setting("log.message.timestamp.before.max.ms")
    log_message_timestamp_after_max_ms: int = _setting("log.message.timestamp.after.max.ms")
    log_flush_interval_messages: int = _setting("log.flush.interval.messages")
    logging_level: str = _setting("logging.level")
    logging_format: Literal["text", "json"] = _setting("logging.format")

    #: From log.roll.ms or log.roll.hours.
    log_roll_ms: int = 168 * _HOUR_MS
    #: From log.retention.ms, .minutes or .hours; -1 for ever.
    log_retention_ms: int = 168 * _HOUR_MS
    #: When an acknowledged record is flushed to disk: by the operating system, before the reply, or at intervals.
    flush: Flush = "os"
    #: How often `flush = interval` flushes; from log.flush.interval.ms or log.flush.scheduler.interval.ms.
    log_flush_interval_ms: int = _DEFAULT_FLUSH_INTERVAL_MS

    group_min_session_timeout_ms: int = _setting("group.min.session.timeout.ms")
    group_max_session_timeout_ms: int = _setting("group.max.session.timeout.ms")
    group_initial_rebalance_delay_ms: int = _setting("group.initial.rebalance.delay.ms")
    group_max_size: int = _setting("group.max.size")
    offset_metadata_max_bytes: int = _setting("offset.metadata.max.bytes")
    offsets_retention_minutes: int = _setting("offsets.retention.minutes")
    offsets_retention_check_interval_ms: int = _setting("offsets.retention.check.interval.ms")
    offsets_topic_num_partitions: int = _setting("offsets.topic.num.partitions")
    offsets_topic_segment_bytes: int = _setting("offsets.topic.segment.bytes")
    offsets_commit_timeout_ms: int = _setting("offsets.commit.timeout.ms")

    #: The configs as they were set, for DescribeConfigs.
    static_configs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    #: Configs altered while the broker ran: cluster-wide defaults, and those of this broker, which take precedence.
    dynamic_defaults: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    dynamic_configs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    def text_of(self, name: str) -> str | None:
        """The text of a config from any source; None if it is unset."""
        for layer in (self.dynamic_configs, self.dynamic_defaults, self.static_configs):
            if name in layer:
                return layer[name]
        return BROKER_KEYS[name].default

    @property
    def cluster_defaults(self) -> Mapping[str, str]:
        """The cluster-wide defaults: altered ones, and the one that Kafka sets when a cluster is formatted."""
        return {MIN_ISR: self.static_configs.get(MIN_ISR, BROKER_KEYS[MIN_ISR].default or ""), **self.dynamic_defaults}

    @classmethod
    def of(cls, values: Mapping[str, str]) -> BrokerConfig:
        """The configuration of these names and values; `ConfigError` for an unknown name or an invalid value."""
        parsed = {name: _key(name).parse(text) for name, text in values.items()}
        own: dict[str, Any] = {  # Any: each value has the type of the field that carries its name
            setting.name: parsed[setting.metadata["name"]]
            for setting in fields(cls)
            if setting.metadata.get("name") in parsed
        }
        if "queued_max_request_bytes" not in own and "socket_request_max_bytes" in own:
            own["queued_max_request_bytes"] = max(cls.queued_max_request_bytes, own["socket_request_max_bytes"])
        listeners = client_listeners("listeners", {**OWN_DEFAULTS, **values})
        config = cls(
            node_id=_node_id(parsed),
            listeners=listeners,
            advertised_listeners=MappingProxyType(advertised_listeners(values, listeners)),
            security=security_settings(listeners, values),
            data_dir=_data_dir(parsed),
            broker_rack=values.get("broker.rack"),
            log_roll_ms=_log_roll_ms(parsed),
            log_retention_ms=_log_retention_ms(parsed),
            flush=_flush(parsed),
            log_flush_interval_ms=_flush_interval_ms(parsed) or _DEFAULT_FLUSH_INTERVAL_MS,
            static_configs=MappingProxyType(dict(values)),
            **own,
        )
        _reject_contradictions(config)
        return config

    @property
    def listener(self) -> Listener:
        """The first listener, usually the only one."""
        return self.listeners[0]

    @property
    def configured_node_id(self) -> int | None:
        """None if it is unset. The data directory keeps the id that it was created with."""
        return self.node_id if "node.id" in self.static_configs or "broker.id" in self.static_configs else None

    def with_data_dir(self, data_dir: Path) -> BrokerConfig:
        """A copy with another data directory. The path of `--data` may contain a comma, which a list cannot."""
        return replace(
            self, data_dir=data_dir, static_configs=MappingProxyType({**self.static_configs, "log.dirs": str(data_dir)})
        )


#: All names with an effect.
EFFECTIVE_NAMES: Final[frozenset[str]] = frozenset(
    {setting.metadata["name"] for setting in fields(BrokerConfig) if "name" in setting.metadata}
    | {*_LISTENER_NAMES, *_COMBINED_NAMES, *TLS_NAMES, *SASL_NAMES, *ACL_NAMES}
)


def load_config(file: Path | None = None, sets: Sequence[str] = ()) -> BrokerConfig:
    """The configuration from a TOML file, if any, overridden by `name=value` texts."""
    values = {} if file is None else read_file(file)
    for text in sets:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f'"{text}" is not of the form name=value')
        values[name.strip()] = value.strip()
    config = BrokerConfig.of(values)
    _log_without_effect(config, values)
    return config


def read_file(file: Path) -> dict[str, str]:
    """Names and values of a TOML file; a dotted name may be one quoted key or nested tables."""
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the config file {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the config file {file} is not valid TOML: {error}") from None
    values: dict[str, str] = {}
    _flatten(tree, "", values)
    return values


def _flatten(tree: Mapping[str, object], prefix: str, into: dict[str, str]) -> None:
    for part, value in tree.items():
        name = prefix + part
        if isinstance(value, dict):
            _flatten(value, name + ".", into)
        elif name in into:
            raise ConfigError(f"{name} is set twice in the config file")
        else:
            into[name] = _as_text(name, value)


def _as_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, list):
        return ",".join(_as_text(name, item) for item in value)
    raise ConfigError(f"{name} = {value} in the config file is neither text, number, true, false nor a list of them")


def _key(name: str) -> ConfigKey:
    key = BROKER_KEYS.get(name)
    if key is not None:
        return key
    if name in _ALSO_ACCEPTED or name.startswith(_ACCEPTED_PREFIXES):
        return ConfigKey(name, ConfigType.PASSWORD if _SECURITY.fullmatch(name) else ConfigType.STRING, None)
    nearest = difflib.get_close_matches(name, BROKER_KEYS, n=1, cutoff=0.5)
    hint = f'; did you mean "{nearest[0]}"?' if nearest else ", nor is anything like it"
    raise ConfigError(f'"{name}" is not a broker config{hint}')


def _node_id(parsed: Mapping[str, Value]) -> int:
    new, old = parsed.get("node.id"), parsed.get("broker.id")
    if new is not None and old is not None and new != old:
        raise ConfigError(f"node.id = {new} and its old name broker.id = {old} contradict each other")
    node_id = cast("int", new if new is not None else old if old is not None else 1)
    if node_id < 0:
        raise BROKER_KEYS["broker.id"].invalid_value(str(node_id), "Value must be at least 0")
    return node_id


def _data_dir(parsed: Mapping[str, Value]) -> Path:
    directories = cast("tuple[str, ...]", parsed.get("log.dirs") or parsed.get("log.dir") or ("holdfast-data",))
    if len(directories) != 1:
        raise ConfigError(f"log.dirs names {len(directories)} directories, but Holdfast keeps its data in one")
    return Path(directories[0])


def _reject_contradictions(config: BrokerConfig) -> None:
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError(
            f"group.min.session.timeout.ms = {config.group_min_session_timeout_ms} is more than "
            f"group.max.session.timeout.ms = {config.group_max_session_timeout_ms}"
        )
    # A request larger than all memory for requests could never be read.
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        raise ConfigError(
            f"queued.max.request.bytes = {config.queued_max_request_bytes} is less than "
            f"socket.request.max.bytes = {config.socket_request_max_bytes}"
        )


def _first_set(parsed: Mapping[str, Value], *names_and_units: tuple[str, int]) -> int | None:
    """The first of these names that is set, in milliseconds."""
    for name, unit_ms in names_and_units:
        if name in parsed:
            return cast("int", parsed[name]) * unit_ms
    return None


def _log_roll_ms(parsed: Mapping[str, Value]) -> int:
    roll_ms = _first_set(parsed, ("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS))
    if roll_ms is not None and roll_ms < 1:
        raise BROKER_KEYS["log.roll.ms"].invalid_value(str(roll_ms), "Value must be at least 1")
    return 168 * _HOUR_MS if roll_ms is None else roll_ms


def _log_retention_ms(parsed: Mapping[str, Value]) -> int:
    names = (("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS))
    retention_ms = _first_set(parsed, *names)
    if retention_ms == 0:
        raise ConfigError("log.retention.ms, .minutes or .hours must be -1, for ever, or more than 0")
    if retention_ms is None:
        return 168 * _HOUR_MS
    return -1 if retention_ms < 0 else retention_ms


def _flush_interval_ms(parsed: Mapping[str, Value]) -> int | None:
    """The configured interval; Kafka's largest number means never."""
    interval_ms = _first_set(parsed, ("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1))
    return None if interval_ms is None or not 0 < interval_ms < _NEVER_MS else interval_ms


def _flush(parsed: Mapping[str, Value]) -> Flush:
    if "flush" in parsed:
        return cast("Flush", parsed["flush"])
    if parsed.get("log.flush.interval.messages") == 1 or parsed.get("log.flush.interval.ms") == 0:
        return "always"
    return "interval" if _flush_interval_ms(parsed) else "os"


def _has_effect(config: BrokerConfig, name: str, value: str) -> bool:
    if name == "log.flush.interval.messages":
        return value == "1"  # flushing after each record is supported, after every N records is not
    if _SECURITY.fullmatch(name):
        return not without_effect(name, config.listeners, config.static_configs)
    return name in EFFECTIVE_NAMES


def _log_without_effect(config: BrokerConfig, values: Mapping[str, str]) -> None:
    idle = sorted(name for name, value in values.items() if not _has_effect(config, name, value))
    security = [name for name in idle if _SECURITY.fullmatch(name) and values[name] not in ("", "PLAINTEXT")]
    if security:
        logger.warning(
            "this broker is NOT protected by %s: without effect with these listeners and this users.file, "
            "or not known to Holdfast",
            ", ".join(security),
        )
    others = [name for name in idle if name not in security]
    if others:
        logger.info("without effect in Holdfast: %s", ", ".join(others))
