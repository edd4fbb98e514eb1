"""The plays, by what they are about. Importing this package declares them all."""

from tests.conformance.scenarios import (
    admin,
    forgetting,
    found,
    join_phase,
    joining,
    living,
    mixed_versions,
    offsets,
    on_purpose,
    producing,
    restarts,
    static_members,
    syncing,
)

# Last, for it changes the generations of those who come after it.
from tests.conformance.scenarios import deleting  # isort: skip

__all__ = [
    "admin",
    "deleting",
    "forgetting",
    "found",
    "join_phase",
    "joining",
    "living",
    "mixed_versions",
    "offsets",
    "on_purpose",
    "producing",
    "restarts",
    "static_members",
    "syncing",
]
