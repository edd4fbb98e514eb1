"""How the gateway connects to Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.client import security
from holdfast.client.config import read_config
from holdfast.client.security import Security

MAX_RESPONSE_BYTES: Final = 100_000_000
"""librdkafka's `receive.message.max.bytes`. A greater length means that the server does not speak Kafka's protocol."""


@dataclass(frozen=True, slots=True)
class KafkaClientSettings:
    """Certificates and keys are read once, when the object is created."""

    security: Security = field(default_factory=Security)
    client_id: str = "holdfast-gateway"
    max_response_bytes: int = MAX_RESPONSE_BYTES

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> KafkaClientSettings:
        """From librdkafka's settings of security. Raises `holdfast.client.errors.ConfigError`, which names the setting.

        Any: values are text, and `oauth_cb` is a function.
        """
        found = Security.from_config(config)
        read_config(config, {}, security.NAMES)
        return cls(found)
