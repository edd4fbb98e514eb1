"""What can be wrong with a state, beyond what can be wrong with whatever a pipeline keeps."""

from __future__ import annotations

from pathlib import Path

from holdfast.client.errors import ConfigError, HoldfastError


class SettingsDiffer(ConfigError):
    """The state was begun with others."""


class SumOverflow(HoldfastError):
    """A sum does not fit into 64 bits."""

    FATAL = True


class RunGone(HoldfastError):
    """A run is not there: another version has replaced it, or somebody has deleted it."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(f"{path} is gone: the state has moved on, or it was deleted. Read again")
