"""The plays, by what they are about. Importing this package declares them all."""

from tests.conformance.scenarios import admin, join_phase, joining, living, offsets, static_members, syncing

# Last, for it changes the generations of those who come after it.
from tests.conformance.scenarios import deleting  # isort: skip

__all__ = ["admin", "deleting", "join_phase", "joining", "living", "offsets", "static_members", "syncing"]
