"""Holdfast: Kafka consumer groups that hold still."""

from holdfast.version import VERSION as __version__

__all__ = ["__version__"]
