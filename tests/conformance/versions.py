"""The rows of versions in which a scenario is run: each row is a client of one age, and each version is in a row.

A row is known by its version of JoinGroup. The first with an instance id is 5, in every API that has one.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.wire.apis.delete_groups import DELETE_GROUPS
from holdfast.wire.apis.describe_groups import DESCRIBE_GROUPS
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR
from holdfast.wire.apis.heartbeat import HEARTBEAT
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.leave_group import LEAVE_GROUP
from holdfast.wire.apis.list_groups import LIST_GROUPS
from holdfast.wire.apis.offset_commit import OFFSET_COMMIT
from holdfast.wire.apis.offset_delete import OFFSET_DELETE
from holdfast.wire.apis.offset_fetch import OFFSET_FETCH
from holdfast.wire.apis.sync_group import SYNC_GROUP

HANDS_OUT_IDS = 4
"""From here on a dynamic newcomer is sent away once, with its id (KIP-394)."""
STATIC = 5
"""From here on there are instance ids (KIP-345)."""
NAMES_PROTOCOL = 7
"""From here on SyncGroup carries the protocol's type and name (KIP-559)."""
NEWEST = 9

APIS = (
    JOIN_GROUP,
    SYNC_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DELETE_GROUPS,
    FIND_COORDINATOR,
)
_TABLE = (
    # Join, Sync, Heartbeat, Leave, Commit, Fetch, Describe, List, Delete, FindCoordinator
    (0, 0, 0, 0, 2, 1, 0, 0, 0, 0),
    (1, 1, 1, 1, 3, 2, 1, 1, 1, 1),
    (2, 1, 1, 1, 4, 3, 2, 2, 1, 1),
    (3, 2, 2, 2, 5, 4, 3, 2, 1, 2),
    (4, 2, 2, 2, 6, 5, 3, 2, 1, 2),
    (5, 3, 3, 3, 7, 6, 4, 3, 2, 3),
    (6, 4, 3, 3, 8, 7, 5, 4, 2, 4),
    (7, 5, 4, 4, 8, 8, 5, 4, 2, 5),
    (8, 5, 4, 5, 9, 9, 5, 5, 2, 6),
    (9, 5, 4, 5, 10, 10, 6, 5, 2, 6),
)


@dataclass(frozen=True, slots=True)
class Row:
    number: int
    versions: dict[int, int]
    """API key to version."""

    def of(self, key: int) -> int:
        return self.versions[key]

    @property
    def hands_out_ids(self) -> bool:
        return self.number >= HANDS_OUT_IDS

    @property
    def is_static(self) -> bool:
        return self.number >= STATIC


ROWS = tuple(
    Row(row[0], dict(zip((api.key for api in APIS), row, strict=True)) | {OFFSET_DELETE.key: 0}) for row in _TABLE
)
