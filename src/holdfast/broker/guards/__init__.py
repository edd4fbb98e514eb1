"""Before each handler stands its guard, if the broker has a users file: what the client may not ask for is taken out of
the request and answered with Kafka's refusal, the rest goes on to the handler. Without a users file nobody is asked.

Importing this package registers every guard.
"""

from importlib import import_module
from pkgutil import iter_modules

from holdfast.broker.guards._guarding import GUARDS, UNGUARDED, guarded_handlers

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["GUARDS", "UNGUARDED", "guarded_handlers"]
