"""`group.bootstrap.servers`: the servers of the groups, if they are not the brokers that have the records.

A member then finds its coordinator there, joins, and commits its offsets. Topics and records come from the brokers of
`bootstrap.servers`. Both use the same network settings. The settings of security can be different: with the prefix
`group.`, they apply to the servers of the groups only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.client import security
from holdfast.client.errors import ConfigError

BOOTSTRAP: Final = "bootstrap.servers"
_PREFIX: Final = "group."
GROUP_BOOTSTRAP: Final = f"{_PREFIX}{BOOTSTRAP}"
_SECURITY: Final = {f"{_PREFIX}{name}": name for name in security.NAMES}
NAMES: Final = frozenset({GROUP_BOOTSTRAP, *_SECURITY})
_ALTERNATIVES: Final = (
    {"sasl.mechanism", "sasl.mechanisms"},
    {"ssl.ca.location", "ssl.ca.pem"},
    {"ssl.certificate.location", "ssl.certificate.pem"},
    {"ssl.key.location", "ssl.key.pem"},
)
"""Names for the same thing. One of them with the prefix replaces all of them without."""


def group_config(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings for the servers of the groups, by their names without the prefix; None if the groups are on the
    brokers of `bootstrap.servers`."""
    own = {name: config[prefixed] for prefixed, name in _SECURITY.items() if prefixed in config}
    if GROUP_BOOTSTRAP not in config:
        if own:
            raise ConfigError(f"{_PREFIX}{min(own)} needs {GROUP_BOOTSTRAP}: give the servers of the groups")
        return None
    replaced = set(own).union(*(names for names in _ALTERNATIVES if not names.isdisjoint(own)))
    shared = {name: value for name, value in config.items() if name not in replaced}
    return shared | own | {BOOTSTRAP: config[GROUP_BOOTSTRAP]}


def without_group_servers(config: Mapping[str, Any]) -> dict[str, Any]:
    """For a client that only reads records."""
    return {name: value for name, value in config.items() if name not in NAMES}
