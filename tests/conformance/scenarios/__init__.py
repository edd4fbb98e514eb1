"""The scenarios by subject. Importing this package declares them all."""

from tests.conformance.scenarios import (
    admin,
    intentional_differences,
    join_group,
    join_phase,
    mixed_versions,
    offset_expiry,
    offsets,
    produce,
    random_findings,
    restarts,
    sessions,
    static_members,
    sync_group,
)

# Last, because it changes the generations of the scenarios after it.
from tests.conformance.scenarios import delete_groups  # isort: skip

__all__ = [
    "admin",
    "delete_groups",
    "intentional_differences",
    "join_group",
    "join_phase",
    "mixed_versions",
    "offset_expiry",
    "offsets",
    "produce",
    "random_findings",
    "restarts",
    "sessions",
    "static_members",
    "sync_group",
]
