"""`partition.metadata`: the topic id that a partition's directory belongs to.

A topic that is deleted and created again has the same name but another id.
"""

from __future__ import annotations

import base64
import binascii
import logging
import uuid
from pathlib import Path

from holdfast.log import disk
from holdfast.log.errors import CorruptLog

_logger = logging.getLogger(__name__)

_NAME = "partition.metadata"


def encode_topic_id(topic_id: uuid.UUID) -> str:
    """Kafka's text form of a UUID: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def decode_topic_id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (ValueError, binascii.Error):
        raise ValueError(f"{text!r} is not a topic id") from None


def write_topic_id(directory: Path, topic_id: uuid.UUID) -> None:
    content = f"version: 0\ntopic_id: {encode_topic_id(topic_id)}"
    # Not synced, because a request may create thousands of partitions. After a power failure the file may be empty.
    disk.replace_file(directory / _NAME, content.encode(), sync=False)


def read_topic_id(directory: Path) -> uuid.UUID | None:
    """The topic id. None if the file does not exist, or is empty after a power failure."""
    path = directory / _NAME
    try:
        # Unbuffered, because a start may read ten thousand of them.
        with path.open("rb", buffering=0) as file:
            content = file.read()
    except FileNotFoundError:
        return None
    if not content.strip(b"\0"):
        _logger.warning("%s is empty; the directory is taken for that of its topic", path)
        return None
    lines = content.decode(errors="replace").splitlines()
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    try:
        return decode_topic_id(fields["topic_id"])
    except (KeyError, ValueError):
        raise CorruptLog(f"{path} names no topic id") from None
