"""One file per API. Importing this package registers every handler in `holdfast.broker.dispatch.HANDLERS`."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
