"""Packages that a plain installation does not include, and the extras of pyproject.toml that install them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

CLIENT: Final = ("confluent_kafka", "numpy")
SPARK: Final = (*CLIENT, "pyspark", "pyarrow", "pandas", "deltalake", "obstore")
"""As importable names. The extra `spark` includes the packages of `client`."""
PLOT: Final = ("matplotlib",)
_EXTRAS: Final = {"client": CLIENT, "plot": PLOT, "spark": SPARK}


class MissingExtra(ImportError):
    """The packages of a feature are not installed; the message is one sentence."""


def check_installed(what: str, packages: Sequence[str]) -> None:
    """Raises MissingExtra if `what` needs a package that is not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise MissingExtra(_sentence(what, missing))


@contextmanager
def needed_for(what: str, packages: Sequence[str]) -> Iterator[None]:
    """For imports in the block: raises MissingExtra if one of these packages is needed and not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        check_installed(what, packages)  # names all that are missing, not only the first
        raise


def _sentence(what: str, missing: Sequence[str]) -> str:
    extra = next(name for name, brings in _EXTRAS.items() if set(missing) <= set(brings))
    return f"{what} needs {', '.join(missing)}: pip install 'holdfast[{extra}]'"
