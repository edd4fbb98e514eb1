"""The plays, by what they are about. Importing this package declares them all."""

from tests.conformance.scenarios import join_phase, joining, static_members, syncing

__all__ = ["join_phase", "joining", "static_members", "syncing"]
