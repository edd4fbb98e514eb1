"""Packages that a bare install does not bring, and the extra of pyproject.toml that does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

CLIENT: Final = ("confluent_kafka", "numpy")
SPARK: Final = (*CLIENT, "pyspark", "pyarrow", "pandas")
"""As importable names. The extra `spark` brings what `client` does as well."""


class MissingExtra(ImportError):
    """Something was asked for whose packages are not installed; the message is one sentence."""


def check_installed(what: str, packages: Sequence[str]) -> None:
    """Raises MissingExtra if `what` needs a package that is not there."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise MissingExtra(_sentence(what, missing))


@contextmanager
def needed_for(what: str, packages: Sequence[str]) -> Iterator[None]:
    """Around imports, which raise MissingExtra if one of these packages is needed and not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        check_installed(what, packages)  # names all that are missing, not only the first
        raise


def _sentence(what: str, missing: Sequence[str]) -> str:
    extra = "client" if set(missing) <= set(CLIENT) else "spark"
    return f"{what} needs {', '.join(missing)}: pip install 'holdfast[{extra}]'"
