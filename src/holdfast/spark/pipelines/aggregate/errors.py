"""Errors of a state, in addition to those of all pipelines."""

from __future__ import annotations

from pathlib import Path

from holdfast.client.errors import ConfigError, HoldfastError


class SettingsMismatch(ConfigError):
    """The state was created with other settings."""


class SumOverflow(HoldfastError):
    """A sum does not fit into 64 bits."""

    FATAL = True


class RunMissing(HoldfastError):
    """A run does not exist: its version was superseded, or the file was deleted."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(f"{path} does not exist: it was superseded or deleted. Read again")
