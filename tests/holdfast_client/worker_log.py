"""The log of a consumer process (see `consumer_process`), as a test reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Event:
    kind: str
    at_ms: int
    fields: Mapping[str, Any]

    @property
    def partitions(self) -> list[int]:
        found: list[int] = self.fields["partitions"]
        return found

    @property
    def records(self) -> dict[int, list[tuple[int, int]]]:
        """Offset and number of each, by partition."""
        return {int(partition): [(o, n) for o, n in done] for partition, done in self.fields["records"].items()}

    @property
    def offsets(self) -> dict[int, int]:
        return {int(partition): offset for partition, offset in self.fields["offsets"].items()}

    @property
    def member_id(self) -> str:
        found: str = self.fields["member_id"]
        return found

    @property
    def error(self) -> str:
        found: str = self.fields["error"]
        return found


class WorkerLog:
    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path
        self._path.touch()
        self._read = 0
        self._events: list[Event] = []

    @property
    def events(self) -> list[Event]:
        """What has been done so far."""
        with self._path.open("rb") as log:
            log.seek(self._read)
            whole = log.read()
        whole = whole[: whole.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            fields = json.loads(line)
            self._events.append(Event(fields.pop("event"), fields.pop("at_ms"), fields))
        return list(self._events)

    def events_of(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]

    @property
    def owned(self) -> set[int]:
        """The partitions that it holds now."""
        held: set[int] = set()
        for event in self.events_of("assigned", "revoked", "lost"):
            if event.kind == "assigned":
                held.update(event.partitions)
            else:
                held.difference_update(event.partitions)
        return held
