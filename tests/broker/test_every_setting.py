"""Every setting: a broker is used with it and started again without it, and what it had acknowledged is there."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from holdfast.broker.authorization.users_file import Users, write_users
from holdfast.broker.config.broker import BROKER_KEYS, EFFECTIVE_NAMES, BrokerConfig
from holdfast.broker.config.group import GROUP_KEYS
from holdfast.broker.config.schema import ConfigKey, ConfigType
from holdfast.broker.config.topic import TOPIC_KEYS
from holdfast.broker.server import Broker, BrokerError
from holdfast.wire.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.records import Record, encode_batch
from tests.broker.wire_client import WireClient
from tests.support.eventually import eventually

T = TypeVar("T")

BASE: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}
"""Any port, and few partitions of `__consumer_offsets`, which make a quick start."""

OF_TEXTS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "advertised.listeners": "PLAINTEXT://broker.test:9092",
    "broker.id": "2",
    "follower.replication.throttled.replicas": "0:1",
    "leader.replication.throttled.replicas": "0:1",
    "broker.rack": "rack-1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
    "listeners": "OTHER://127.0.0.1:0",
    "log.cleanup.policy": "compact,delete",
    "group.max.session.timeout.ms": "10000",
    "queued.max.request.bytes": "1048576",
    "super.users": "User:ANONYMOUS",
    "users.file": "USERS",
}
"""Values where type and range do not say what is legal. Of other texts, any is."""
TOGETHER_WITH: Final = {
    "broker.id": {"node.id": "2"},
    "listeners": {"listener.security.protocol.map": "OTHER:PLAINTEXT"},
    "queued.max.request.bytes": {"socket.request.max.bytes": "1048576"},
    "authorizer.class.name": {"users.file": "USERS", "super.users": "User:ANONYMOUS"},
    "super.users": {"users.file": "USERS"},
    "users.file": {"super.users": "User:ANONYMOUS"},
}
"""What a setting needs beside it."""
ALSO: Final = {"offsets.topic.segment.bytes": ("60000",)}
WHERE_THE_DATA_IS: Final = {"log.dir", "log.dirs"}


def values_of(key: ConfigKey) -> list[str]:
    """Legal ones other than the default: the first, or the lowest and one that is nearer to the default."""
    if key.name in OF_TEXTS:
        return [OF_TEXTS[key.name]]
    if key.type is ConfigType.BOOLEAN:
        return ["false" if key.default == "true" else "true"]
    if choices := re.fullmatch(r"(?:\(case insensitive\) )?\[([^\[\].]+)\]", key.check):
        return [one.strip() for one in choices[1].split(",") if one.strip() != key.default][:1]
    if key.type in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE):
        bounds = re.match(r"\[(-?\d+)", key.check)
        lowest = int(bounds[1]) if bounds else 1
        default = float(key.default or 0)
        nearer = default * 0.75 if key.type is ConfigType.DOUBLE else int(default) * 3 // 4
        found = [str(one) for one in (lowest, nearer) if one != default and one >= lowest]
        return list(dict.fromkeys(found)) or [str(int(default) + 1)]
    return ["x"]


SETTINGS: Final = [
    (name, value)
    for name in sorted(EFFECTIVE_NAMES - WHERE_THE_DATA_IS)
    for value in (*values_of(BROKER_KEYS[name]), *ALSO.get(name, ()))
]


# -- running a broker --------------------------------------------------------------------------------------------------


def run(settings: Mapping[str, str], data: Path, use: Callable[[tuple[str, int]], T]) -> T:
    async def scenario() -> T:
        broker = Broker(BrokerConfig.of(settings), data)
        await broker.start()
        try:
            return await asyncio.to_thread(use, broker.address)
        finally:
            await broker.stop()

    return asyncio.run(scenario())


GROUP: Final = "readers"
COMMITS: Final = 20
METADATA: Final = "m" * 3900
"""With so many commits, more than 60,000 bytes of `__consumer_offsets`."""
BATCHES: Final = 4
IN_SEGMENTS: Final = {"internal.segment.bytes": "8192"}


@dataclass
class Acknowledged:
    """What was acknowledged to clients as stored."""

    records: dict[str, list[bytes]] = field(default_factory=dict)
    committed: int | None = None

    @property
    def is_all(self) -> bool:
        return self.committed == COMMITS and all(len(keys) == BATCHES for keys in self.records.values())


def use(address: tuple[str, int], topics: Mapping[str, Mapping[str, str]] | None = None) -> Acknowledged:
    """Creates topics, produces and commits; what is refused because of the setting is not acknowledged."""
    done = Acknowledged()
    for name, configs in (topics or {"plain": {}, "segments": IN_SEGMENTS}).items():
        done.records[name] = []
        try:
            with WireClient(address) as client:
                fill(client, name, configs, done.records[name])
        except ConnectionError:
            continue
    try:
        with WireClient(address) as client:
            for offset in range(1, COMMITS + 1):
                if commit(client, next(iter(done.records)), offset):
                    done.committed = offset
    except ConnectionError:
        pass
    return done


def fill(client: WireClient, name: str, configs: Mapping[str, str], stored: list[bytes]) -> None:
    wanted = [CreatableTopicConfig(config, value) for config, value in configs.items()]
    (made,) = client.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1, configs=wanted)], 30_000), 5).topics
    if made.error_code:
        return
    for number in range(BATCHES):
        key = f"{name}-{number}".encode()
        answer = client.produce(name, encode_batch([Record(0, time.time_ns() // 1_000_000, key, b"v" * 3000)]))
        if answer.error_code == 0:
            stored.append(key)


def commit(client: WireClient, topic: str, offset: int) -> bool:
    partition = OffsetCommitRequestPartition(0, offset, committed_metadata=METADATA)
    request = OffsetCommitRequest(GROUP, topics=[OffsetCommitRequestTopic(topic, partitions=[partition])])
    return all(one.error_code == 0 for topic in client.ask(request, 8).topics for one in topic.partitions)


def check(address: tuple[str, int], done: Acknowledged) -> None:
    with WireClient(address) as client:
        for name, keys in done.records.items():
            if keys:
                assert [record.key for record in client.fetch_all(name)] == keys
        if done.committed is not None:
            assert committed(client, next(iter(done.records))) == done.committed


def committed(client: WireClient, topic: str) -> int:
    request = OffsetFetchRequest(GROUP, topics=[OffsetFetchRequestTopic(topic, [0])])

    def loaded() -> Any:
        answer = client.ask(request, 7)
        return answer if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else None

    (found,) = eventually(loaded, "the group is loaded").topics
    (partition,) = found.partitions
    return int(partition.committed_offset)


# -- settings of the broker --------------------------------------------------------------------------------------------

HINDERS: Final = {
    ("log.message.timestamp.before.max.ms", "0"): "records are too old when they arrive",
    ("connections.max.idle.ms", "1"): "connections are closed between two requests",
    ("max.connections", "0"): "nobody can connect",
    ("max.connections.per.ip", "0"): "nobody can connect",
    ("message.max.bytes", "0"): "every record is too large",
    ("offset.metadata.max.bytes", "1"): "the metadata of the commits is too large",
    ("offset.metadata.max.bytes", "3072"): "the metadata of the commits is too large",
    ("offsets.topic.segment.bytes", "1"): "no commit fits into a segment",
    ("socket.request.max.bytes", "1"): "every request is too large",
}
"""Settings with which not everything is acknowledged, and why. What was, must be there all the same."""


@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_what_a_broker_stored_with_a_setting_is_there_without_it(name: str, value: str, tmp_path: Path) -> None:
    users = tmp_path / "users.json"
    write_users(users, Users())
    settings = {**BASE, **TOGETHER_WITH.get(name, {}), name: value}
    settings = {config: str(users) if text == "USERS" else text for config, text in settings.items()}

    done = run(settings, tmp_path / "data", use)

    run(BASE, tmp_path / "data", lambda address: check(address, done))
    assert done.is_all or (name, value) in HINDERS, done


def test_data_stored_with_settings_without_effect_is_there_without_them(tmp_path: Path) -> None:
    without_effect = {name: values_of(BROKER_KEYS[name])[0] for name in sorted(BROKER_KEYS.keys() - EFFECTIVE_NAMES)}

    done = run({**without_effect, **BASE}, tmp_path, use)

    run(BASE, tmp_path, lambda address: check(address, done))
    assert done.is_all


NOBODY_CAN_CONNECT: Final = {("max.connections", "0"), ("max.connections.per.ip", "0")}


@pytest.mark.parametrize(
    ("name", "value"), [one for one in SETTINGS if BROKER_KEYS[one[0]].dynamic and one not in NOBODY_CAN_CONNECT]
)
def test_what_a_broker_stored_with_an_altered_setting_is_there_with_and_without_it(
    name: str, value: str, tmp_path: Path
) -> None:
    def altered_and_used(address: tuple[str, int]) -> Acknowledged:
        alter(address, BROKER, "1", name, value)
        return use(address)

    def checked_and_reset(address: tuple[str, int]) -> None:
        check(address, done)
        alter(address, BROKER, "1", name, None)

    done = run(BASE, tmp_path, altered_and_used)
    run(BASE, tmp_path, checked_and_reset)
    run(BASE, tmp_path, lambda address: check(address, done))
    assert done.is_all or (name, value) in HINDERS, done


# -- settings of topics and groups -------------------------------------------------------------------------------------

BROKER, TOPIC, GROUP_RESOURCE = 4, 2, 32
SET, DELETE = 0, 1


def alter(address: tuple[str, int], kind: int, name: str, config: str, value: str | None) -> None:
    change = IncrementalAlterableConfig(config, DELETE if value is None else SET, value)
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(kind, name, [change])])
    with WireClient(address) as client:
        (answer,) = client.ask(request, 1).responses
    assert answer.error_code == 0, answer


NOT_TAKEN: Final = {"remote.storage.enable"}
HINDERS_TOPICS: Final = {
    ("internal.segment.bytes", "1"),
    ("max.message.bytes", "0"),
    ("message.timestamp.before.max.ms", "0"),
}


def test_what_a_topic_holds_is_there_when_its_own_settings_are_gone(tmp_path: Path) -> None:
    """One topic for each setting and value, in one broker."""
    topics = {
        f"{name}-{number}": {name: value}
        for name, key in TOPIC_KEYS.items()
        for number, value in enumerate(values_of(key))
        if name not in NOT_TAKEN
    }

    def checked_and_reset(address: tuple[str, int]) -> None:
        check(address, done)
        for topic, configs in topics.items():
            for name in configs:
                alter(address, TOPIC, topic, name, None)

    done = run(BASE, tmp_path, lambda address: use(address, topics))
    run(BASE, tmp_path, checked_and_reset)
    run(BASE, tmp_path, lambda address: check(address, done))
    empty = {topic for topic, keys in done.records.items() if len(keys) < BATCHES}
    assert {pair for topic in empty for pair in topics[topic].items()} <= HINDERS_TOPICS


@pytest.mark.parametrize("name", GROUP_KEYS)
def test_what_a_group_committed_is_there_when_its_own_settings_are_gone(name: str, tmp_path: Path) -> None:
    def altered_and_used(address: tuple[str, int]) -> Acknowledged:
        alter(address, GROUP_RESOURCE, GROUP, name, str(GROUP_KEYS[name].minimum))
        return use(address)

    def checked_and_reset(address: tuple[str, int]) -> None:
        check(address, done)
        alter(address, GROUP_RESOURCE, GROUP, name, None)

    done = run(BASE, tmp_path, altered_and_used)
    run(BASE, tmp_path, checked_and_reset)
    run(BASE, tmp_path, lambda address: check(address, done))
    assert done.is_all


def test_a_topic_config_that_no_topic_takes_is_ignored_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As Holdfast itself once stored one, from a small `offsets.topic.segment.bytes`."""
    done = run(BASE, tmp_path, use)
    stored = tmp_path / "topics.json"
    assert '"segment.bytes": "104857600"' in stored.read_text()
    edited = json.loads(stored.read_text().replace('"segment.bytes": "104857600"', '"segment.bytes": "60000"'))
    del edited["crc32c"]  # as the error for a wrong one asks of those who edit the file
    stored.write_text(json.dumps(edited))

    run(BASE, tmp_path, lambda address: check(address, done))

    assert "topic config ignored" in caplog.text


def test_the_node_id_of_the_data_is_kept_where_none_is_set_and_checked_where_one_is(tmp_path: Path) -> None:
    run({**BASE, "node.id": "7"}, tmp_path, use)

    async def node_id_of(settings: Mapping[str, str]) -> int:
        broker = Broker(BrokerConfig.of(settings), tmp_path)
        await broker.start()
        await broker.stop()
        return broker.config.node_id

    assert asyncio.run(node_id_of(BASE)) == 7
    with pytest.raises(BrokerError, match=r"belongs to node\.id=7, not to 1"):
        asyncio.run(node_id_of({**BASE, "node.id": "1"}))
