"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs; the expected answers are those of Apache Kafka 4.3."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.broker.api.handlers.alter_configs import alter_configs
from holdfast.broker.api.handlers.describe_configs import describe_configs
from holdfast.broker.api.handlers.incremental_alter_configs import incremental_alter_configs
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.config.dynamic import DynamicBrokerConfig
from holdfast.broker.groups.event_log import EVENT_LOG_CONFIGS
from holdfast.broker.util.shielded_tasks import ShieldedTasks
from holdfast.broker.util.slices import SliceScheduler
from holdfast.coordinator.events.group_event import LEDGER_TOPIC
from holdfast.log.errors import StorageError
from holdfast.log.inspection import run_to_completion
from holdfast.wire.apis.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from holdfast.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = range(4)
NONE, UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_CONFIG, INVALID_REQUEST, STORAGE_ERROR = 0, 3, 17, 40, 42, 56

NO_CONTEXT = cast("RequestContext", None)  # these handlers ask nothing about who asks


@dataclass
class FakeTopic:
    name: str
    overrides: dict[str, str] = field(default_factory=dict)


class FakeTopics:
    def __init__(self, *topics: FakeTopic) -> None:
        self._topics = {topic.name: topic for topic in topics}
        self.stores = 0
        self.failing = False

    def get(self, name: str) -> FakeTopic | None:
        return self._topics.get(name)

    async def set_overrides(self, topic: FakeTopic, overrides: dict[str, str]) -> bool:
        await asyncio.sleep(0)  # as the real one, which waits for the disk
        if self.failing:
            raise StorageError("write", Path("topics.json"), OSError(28, "No space left on device"))
        self.stores += 1
        topic.overrides = overrides
        return True


class FakeDynamicConfig(DynamicBrokerConfig):
    async def alter(self, config: BrokerConfig) -> None:
        await asyncio.sleep(0)  # as the real one, which waits for the disk
        self.current = config


class FakeBroker:
    def __init__(self, config: BrokerConfig | None = None, **overrides: str) -> None:
        self.dynamic_config = FakeDynamicConfig(config or BrokerConfig())
        self.topic = FakeTopic("t", {name.replace("_", "."): value for name, value in overrides.items()})
        self.topics = FakeTopics(self.topic)
        self.config_lock = asyncio.Lock()
        self.tasks = ShieldedTasks()
        self.slices = SliceScheduler()

    @property
    def config(self) -> BrokerConfig:
        return self.dynamic_config.current

    @property
    def as_services(self) -> Services:
        return cast("Services", self)

    def describe(
        self,
        kind: int,
        name: str,
        keys: list[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> DescribeConfigsResult:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=synonyms, include_documentation=documentation
        )
        [result] = run_to_completion(describe_configs(self.as_services, request, NO_CONTEXT)).results
        assert (result.resource_type, result.resource_name) == (kind, name)
        return result

    def alter(
        self, kind: int, name: str, configs: dict[str, str | None], *, validate_only: bool = False
    ) -> tuple[int, str | None]:
        alterable = [AlterableConfig(name=key, value=value) for key, value in configs.items()]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=alterable)
        request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        [result] = asyncio.run(alter_configs(self.as_services, request, NO_CONTEXT)).responses
        return result.error_code, result.error_message

    def change(
        self, *changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = "t", validate_only: bool = False
    ) -> tuple[int, str | None]:
        [outcome] = self.change_all([resource(kind, name, changes)], validate_only=validate_only)
        return outcome

    def change_all(
        self, resources: list[IncrementalAlterConfigsResource], *, validate_only: bool = False
    ) -> list[tuple[int, str | None]]:
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
        response = asyncio.run(incremental_alter_configs(self.as_services, request, NO_CONTEXT))
        return [(result.error_code, result.error_message) for result in response.responses]


def resource(kind: int, name: str, changes: Iterable[tuple[str, int, str | None]]) -> IncrementalAlterConfigsResource:
    configs = [IncrementalAlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    return IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


# -- DescribeConfigs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [None, []])
def test_all_configs_of_a_topic_are_described_when_none_is_named(keys: list[str] | None) -> None:
    result = FakeBroker().describe(TOPIC, "t", keys)
    assert (result.error_code, result.error_message, len(result.configs)) == (NONE, "", 33)


def test_only_the_named_configs_are_described_and_unknown_ones_are_skipped() -> None:
    result = FakeBroker(retention_ms="5000").describe(TOPIC, "t", ["retention.ms", "no.such"])
    [config] = result.configs
    assert (config.name, config.value, config.config_source) == ("retention.ms", "5000", 1)
    assert (config.config_type, config.read_only, config.is_sensitive) == (5, False, False)


def test_synonyms_and_documentation_come_only_when_asked_for() -> None:
    broker = FakeBroker(retention_ms="5000")
    [bare] = broker.describe(TOPIC, "t", ["retention.ms"]).configs
    [full] = broker.describe(TOPIC, "t", ["retention.ms"], synonyms=True, documentation=True).configs
    assert (bare.synonyms, bare.documentation) == ([], None)
    assert [(s.name, s.value, s.source) for s in full.synonyms] == [("retention.ms", "5000", 1)]
    assert full.documentation


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "nope", UNKNOWN_TOPIC, ""),
        (TOPIC, "", INVALID_TOPIC, "Topic name is invalid: the empty string is not allowed"),
        (BROKER, "7", INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 7"),
        (BROKER, "abc", INVALID_REQUEST, "Broker id must be an integer, but it is: abc"),
        (BROKER_LOGGER, "1", INVALID_REQUEST, "Holdfast has no configs of resource type BROKER_LOGGER"),
        (99, "x", INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
def test_a_resource_that_cannot_be_described_gets_an_error_of_its_own(
    kind: int, name: str, code: int, message: str
) -> None:
    result = FakeBroker().describe(kind, name)
    assert (result.error_code, result.error_message, result.configs) == (code, message, [])


def test_the_broker_describes_itself() -> None:
    result = FakeBroker(BrokerConfig.of({"num.partitions": "3"})).describe(BROKER, "1", ["num.partitions", "node.id"])
    assert [(config.name, config.value, config.config_source) for config in result.configs] == [
        ("node.id", "1", 5),
        ("num.partitions", "3", 4),
    ]


def test_for_all_brokers_kafka_sets_one_config_from_the_beginning() -> None:
    result = FakeBroker().describe(BROKER, "")
    assert result.error_code == NONE
    assert [(one.name, one.value, one.config_source) for one in result.configs] == [("min.insync.replicas", "1", 3)]


@pytest.mark.parametrize(("given", "value"), [({}, "1"), ({"min.insync.replicas": "2"}, "2")])
def test_min_insync_replicas_comes_from_where_kafka_has_it(given: dict[str, str], value: str) -> None:
    broker = FakeBroker(BrokerConfig.of(given))
    for kind, name in ((BROKER, "1"), (TOPIC, "t")):
        [found] = broker.describe(kind, name, ["min.insync.replicas"]).configs
        assert (found.value, found.config_source) == (value, 3)


# -- IncrementalAlterConfigs -------------------------------------------------------------------------------------------


def test_one_config_is_set_and_the_others_stay() -> None:
    broker = FakeBroker(segment_ms="9")
    assert broker.change(("retention.ms", SET, "5000")) == (NONE, None)
    assert broker.topic.overrides == {"segment.ms": "9", "retention.ms": "5000"}


def test_a_deleted_config_is_the_default_again() -> None:
    broker = FakeBroker(retention_ms="5000")
    assert broker.change(("retention.ms", DELETE, None)) == (NONE, None)
    assert broker.topic.overrides == {}


def test_deleting_what_is_not_set_and_changing_nothing_are_fine_and_store_nothing() -> None:
    broker = FakeBroker()
    assert broker.change(("retention.ms", DELETE, None)) == (NONE, None)
    assert broker.change() == (NONE, None)
    assert broker.topics.stores == 0


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),
        ("delete,compact", APPEND, "compact", "delete,compact"),
        ("delete,compact", SUBTRACT, "delete", "compact"),
        (None, SUBTRACT, "delete", ""),
    ],
)
def test_a_list_is_added_to_and_taken_from(before: str | None, operation: int, value: str, after: str) -> None:
    broker = FakeBroker()
    if before is not None:
        broker.topic.overrides = {"cleanup.policy": before}
    assert broker.change(("cleanup.policy", operation, value)) == (NONE, None)
    assert broker.topic.overrides == {"cleanup.policy": after}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            ("retention.ms", APPEND, "1"),
            INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (("no.such", SET, "1"), INVALID_CONFIG, "Unknown topic config name: no.such"),
        (
            ("retention.ms", SET, "abc"),
            INVALID_CONFIG,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (("retention.ms", SET, None), INVALID_REQUEST, "Null value not supported for : retention.ms"),
        (("retention.ms", 9, "1"), INVALID_REQUEST, "Unknown operation type 9"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(
    change: tuple[str, int, str | None], code: int, message: str
) -> None:
    broker = FakeBroker(segment_ms="9")
    assert broker.change(("flush.ms", SET, "5"), change) == (code, message)
    assert broker.topic.overrides == {"segment.ms": "9"}


def test_the_same_config_twice_is_refused() -> None:
    broker = FakeBroker()
    twice = broker.change(("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert twice == (INVALID_REQUEST, "Error due to duplicate config keys")
    assert broker.topic.overrides == {}


def test_the_same_resource_twice_is_refused_both_times() -> None:
    broker = FakeBroker()
    again = resource(TOPIC, "t", [("retention.ms", SET, "1")])
    outcomes = broker.change_all([again, again])
    assert outcomes == [(INVALID_REQUEST, "Each resource must appear at most once.")] * 2
    assert broker.topic.overrides == {}


def test_an_error_on_one_resource_leaves_the_others_alone() -> None:
    broker = FakeBroker()
    outcomes = broker.change_all(
        [resource(TOPIC, "nope", [("retention.ms", SET, "1")]), resource(TOPIC, "t", [("retention.ms", SET, "1")])]
    )
    assert outcomes == [(UNKNOWN_TOPIC, "The topic 'nope' does not exist."), (NONE, None)]
    assert broker.topic.overrides == {"retention.ms": "1"}


def test_validate_only_says_what_would_happen_and_changes_nothing() -> None:
    broker = FakeBroker()
    assert broker.change(("retention.ms", SET, "1"), validate_only=True) == (NONE, None)
    assert broker.change(("retention.ms", SET, "x"), validate_only=True)[0] == INVALID_CONFIG
    assert (broker.topic.overrides, broker.topics.stores) == ({}, 0)


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "", INVALID_REQUEST, "Default topic resources are not allowed."),
        (
            TOPIC,
            "a b",
            INVALID_TOPIC,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'",
        ),
        (BROKER, "7", INVALID_REQUEST, "Unexpected broker id, expected 1, but received 7"),
        (CLIENT_METRICS, "m", INVALID_REQUEST, "Holdfast has no configs of resource type CLIENT_METRICS"),
        (99, "x", INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
def test_a_resource_that_cannot_be_altered_gets_an_error_of_its_own(
    kind: int, name: str, code: int, message: str
) -> None:
    assert FakeBroker().change(("retention.ms", SET, "1"), kind=kind, name=name) == (code, message)


@pytest.mark.parametrize("name", ["", "1"])
@pytest.mark.parametrize(
    ("config", "value", "message"),
    [
        ("num.partitions", "2", "Cannot update these configs dynamically: [num.partitions]"),
        ("ssl.keystore.location", "x", "Cannot update these configs dynamically: [ssl.keystore.location]"),
        ("no.such", "1", '"no.such" is not a broker config'),
        (
            "log.retention.ms",
            "abc",
            "Invalid value abc for configuration log.retention.ms: Not a number of type LONG",
        ),
    ],
)
def test_a_broker_config_that_cannot_be_altered_is_refused_and_changes_nothing(
    name: str, config: str, value: str, message: str
) -> None:
    broker = FakeBroker()
    before = broker.config
    changes = (("message.max.bytes", SET, "5000"), (config, SET, value))
    assert broker.change(*changes, kind=BROKER, name=name) == (INVALID_REQUEST, message)
    assert broker.config == before


def test_broker_configs_are_altered_for_all_and_for_this_one_which_wins() -> None:
    broker = FakeBroker(BrokerConfig.of({"log.retention.hours": "3"}))

    assert broker.change(("log.retention.ms", SET, "1000"), kind=BROKER, name="") == (NONE, None)
    assert broker.config.log_retention_ms == 1000
    assert broker.change(("log.retention.ms", SET, "2000"), kind=BROKER, name="1") == (NONE, None)
    assert broker.config.log_retention_ms == 2000

    for kind, name, key in ((BROKER, "1", "log.retention.ms"), (TOPIC, "t", "retention.ms")):
        [found] = broker.describe(kind, name, [key], synonyms=True).configs
        assert (found.value, found.config_source, found.read_only) == ("2000", 2, False)
        assert [(one.name, one.value, one.source) for one in found.synonyms] == [
            ("log.retention.ms", "2000", 2),
            ("log.retention.ms", "1000", 3),
            ("log.retention.hours", "3", 4),
            ("log.retention.hours", "168", 5),
        ]
    for_all, _ = broker.describe(BROKER, "").configs
    assert (for_all.name, for_all.value, for_all.config_source) == ("log.retention.ms", "1000", 3)

    assert broker.change(("log.retention.ms", DELETE, None), kind=BROKER, name="1") == (NONE, None)
    assert broker.config.log_retention_ms == 1000
    assert broker.alter(BROKER, "", {"min.insync.replicas": "1"}) == (NONE, None)
    assert broker.config.log_retention_ms == 3 * 3_600_000
    assert [one.name for one in broker.describe(BROKER, "").configs] == ["min.insync.replicas"]


def test_min_insync_replicas_is_altered_for_all_brokers_or_not_at_all() -> None:
    broker = FakeBroker()
    key = "min.insync.replicas"
    removed = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    own = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    assert broker.change((key, DELETE, None), kind=BROKER, name="") == (INVALID_CONFIG, removed)
    assert broker.alter(BROKER, "", {"log.retention.ms": "1000"}) == (INVALID_CONFIG, removed)
    assert broker.change((key, SET, "2"), kind=BROKER, name="1") == (INVALID_CONFIG, own)

    assert broker.change((key, SET, "2"), kind=BROKER, name="") == (NONE, None)

    [found] = broker.describe(TOPIC, "t", [key]).configs
    assert (found.value, found.config_source) == ("2", 3)
    assert broker.change(("log.retention.ms", SET, "1000"), kind=BROKER, name="1") == (NONE, None)


@pytest.mark.parametrize("change", [("cleanup.policy", SET, "compact"), ("max.message.bytes", DELETE, None)])
def test_the_ledger_keeps_the_configs_that_it_needs(change: tuple[str, int, str | None]) -> None:
    broker = FakeBroker()
    broker.topics = FakeTopics(FakeTopic(LEDGER_TOPIC, dict(EVENT_LOG_CONFIGS)), broker.topic)

    code, message = broker.change(change, name=LEDGER_TOPIC)

    assert (code, message) == (INVALID_CONFIG, f"{change[0]} of internal topic __group_ledger cannot be altered.")
    # How long it keeps events is the operator's to say, and another topic is nobody else's business.
    assert broker.change(("retention.ms", SET, "1000"), name=LEDGER_TOPIC) == (NONE, None)
    assert broker.change(change, name="t") == (NONE, None)


def test_an_alteration_of_the_broker_is_only_validated_when_asked() -> None:
    broker = FakeBroker()
    changes = [("message.max.bytes", SET, "5000")]
    assert broker.change(*changes, kind=BROKER, name="1", validate_only=True) == (NONE, None)
    assert broker.config.message_max_bytes == 1048588
    assert broker.change(*changes, kind=BROKER, name="1") == (NONE, None)
    assert broker.config.message_max_bytes == 5000


def test_an_alteration_whose_client_disconnects_is_not_lost_to_the_next() -> None:
    broker = FakeBroker()

    def alteration(name: str, value: str) -> Any:
        request = IncrementalAlterConfigsRequest(resources=[resource(BROKER, "1", [(name, SET, value)])])
        return incremental_alter_configs(broker.as_services, request, NO_CONTEXT)

    async def story() -> None:
        async with broker.dynamic_config.lock:
            first = asyncio.create_task(alteration("message.max.bytes", "5000"))
            await asyncio.sleep(0.01)
            first.cancel()
            second = asyncio.create_task(alteration("log.retention.ms", "7000"))
            await asyncio.sleep(0.01)
        await second
        await broker.tasks.join()

    asyncio.run(story())
    assert (broker.config.message_max_bytes, broker.config.log_retention_ms) == (5000, 7000)


def test_a_list_of_the_broker_is_added_to() -> None:
    broker = FakeBroker()
    assert broker.change(("log.cleanup.policy", APPEND, "compact"), kind=BROKER, name="1") == (NONE, None)
    assert broker.config.log_cleanup_policy == ("delete", "compact")


def test_a_change_that_cannot_be_stored_is_answered_as_such() -> None:
    broker = FakeBroker()
    broker.topics.failing = True
    code, message = broker.change(("retention.ms", SET, "1"))
    assert (code, message) == (STORAGE_ERROR, "cannot write topics.json: No space left on device")
    assert broker.topic.overrides == {}


def test_two_changes_at_once_both_hold() -> None:
    broker = FakeBroker()

    async def change(name: str) -> Any:
        request = IncrementalAlterConfigsRequest(resources=[resource(TOPIC, "t", [(name, SET, "5")])])
        return await incremental_alter_configs(broker.as_services, request, NO_CONTEXT)

    async def both() -> None:
        await asyncio.gather(change("retention.ms"), change("segment.ms"))

    asyncio.run(both())
    assert broker.topic.overrides == {"retention.ms": "5", "segment.ms": "5"}


# -- AlterConfigs ------------------------------------------------------------------------------------------------------


def test_the_whole_set_is_replaced() -> None:
    broker = FakeBroker(retention_ms="5000")
    assert broker.alter(TOPIC, "t", {"segment.ms": "100000"}) == (NONE, None)
    assert broker.topic.overrides == {"segment.ms": "100000"}


@pytest.mark.parametrize(
    ("kind", "name", "configs", "code", "message"),
    [
        (TOPIC, "t", {"no.such": "1"}, INVALID_CONFIG, "Unknown topic config name: no.such"),
        (TOPIC, "t", {"retention.ms": None}, INVALID_REQUEST, "Null value not supported for : retention.ms"),
        (TOPIC, "nope", {"retention.ms": "1"}, UNKNOWN_TOPIC, "The topic 'nope' does not exist."),
        (BROKER, "7", {"retention.ms": "1"}, INVALID_REQUEST, "Unexpected broker id, expected 1, but received 7"),
    ],
)
def test_a_set_that_cannot_be_is_refused_and_changes_nothing(
    kind: int, name: str, configs: dict[str, str | None], code: int, message: str
) -> None:
    broker = FakeBroker(retention_ms="5000")
    assert broker.alter(kind, name, configs) == (code, message)
    assert broker.topic.overrides == {"retention.ms": "5000"}


def test_a_set_is_only_validated_when_asked() -> None:
    broker = FakeBroker(retention_ms="5000")
    assert broker.alter(TOPIC, "t", {"segment.ms": "1"}, validate_only=True) == (NONE, None)
    assert broker.topic.overrides == {"retention.ms": "5000"}
