"""The authorization of each API, if the broker has a users file. A check removes the unauthorized parts of the request
and answers them with Kafka's error. The handler gets the rest.

Importing this package registers every check.
"""

from importlib import import_module
from pkgutil import iter_modules

from holdfast.broker.api.checks.base import CHECKS, UNCHECKED, checked_handlers

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["CHECKS", "UNCHECKED", "checked_handlers"]
