"""CreateTopics: create topics, or only check whether they could be created.

The definitions start at v2. v4 accepts -1 for the broker's default of partitions and replicas (KIP-464); v5 is the
first flexible version and returns what was created, with its configuration (KIP-525). v6 may reject the request because
of a quota (KIP-599), v7 returns the topic's id (KIP-516). v3 changed no field.
"""

from holdfast.wire.fields import array, boolean, int8, int16, int32, string, uuid
from holdfast.wire.message import Api, request, response, struct_type

CREATE_TOPICS = Api(19, "CreateTopics", versions=(2, 7), flexible=5)


@struct_type
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = array(int32())


@struct_type
class CreatableTopicConfig:
    name: str = string()
    value: str | None = string(nullable=0)


@struct_type
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@request(CREATE_TOPICS)
class CreateTopicsRequest:
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


@struct_type
class CreatableTopicResultConfig:
    name: str = string()
    value: str | None = string(nullable=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


@struct_type
class CreatableTopicResult:
    name: str = string()
    topic_id: bytes = uuid(since=7, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    topic_config_error_code: int = int16(since=5, tag=0, ignorable=True)
    num_partitions: int = int32(since=5, default=-1, ignorable=True)
    replication_factor: int = int16(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicResultConfig] | None = array(
        CreatableTopicResultConfig, since=5, nullable=5, ignorable=True
    )


@response(CREATE_TOPICS)
class CreateTopicsResponse:
    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
