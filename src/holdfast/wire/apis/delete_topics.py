"""DeleteTopics: delete topics with their records.

The definitions start at v1; v4 is the first flexible version. v5 adds an error message, v6 names a topic by its name
or by its id (KIP-516). v2 and v3 changed no field.
"""

from holdfast.wire.fields import array, int16, int32, string, uuid
from holdfast.wire.message import Api, request, response, struct_type

DELETE_TOPICS = Api(20, "DeleteTopics", versions=(1, 6), flexible=4)


@struct_type
class DeleteTopicState:
    name: str | None = string(nullable=0, default=None)
    topic_id: bytes = uuid()


@request(DELETE_TOPICS)
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(string(), until=5, ignorable=True)
    timeout_ms: int = int32()


@struct_type
class DeletableTopicResult:
    name: str | None = string(nullable=6)
    topic_id: bytes = uuid(since=6, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=5, nullable=5, default=None, ignorable=True)


@response(DELETE_TOPICS)
class DeleteTopicsResponse:
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
