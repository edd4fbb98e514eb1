"""The plays, by what they are about. Importing this package declares them all."""

from tests.conformance.scenarios import joining

__all__ = ["joining"]
