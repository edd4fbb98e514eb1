"""What the clients raise when a broker refuses, by the protocol's own numbers."""

from typing import Any

import aiokafka.errors
import kafka.errors
from confluent_kafka import KafkaException

from tests.support.line_rpc import CallFailed

REFUSALS: tuple[type[Exception], ...] = (
    KafkaException,
    kafka.errors.KafkaError,
    aiokafka.errors.KafkaError,
    CallFailed,
)

UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53


def error_code(error: Exception) -> int:
    """The number, wherever the client keeps it."""
    if isinstance(error, KafkaException):
        return int(error.args[0].code())
    held: Any = error
    return int(held.errno)
