"""The handlers, one file per API. Importing this package registers all of them in `api/registry.py`."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
