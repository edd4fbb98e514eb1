"""Where a pipeline stores its table or state: a directory that driver and executors share, or a prefix in S3.

Both need an operation that creates a file only if it does not exist. A POSIX file system has hard links, and S3 has
conditional writes (`If-None-Match`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.client.errors import ConfigError

if TYPE_CHECKING:
    from obstore.store import S3Store

_GLOB_CHARACTERS: Final = frozenset("*?[]{}\\")
_S3: Final = ("s3", "s3a")
_OPTION_PREFIX: Final = "aws_"
_ALLOW_HTTP: Final = "allow_http"


@dataclass(frozen=True)
class Location:
    url: str
    """An absolute path, or `s3://bucket/prefix`. It does not end with a slash."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)  # with secrets
    """Options of the object store by the names of its environment variables, for example AWS_ENDPOINT_URL. The
    environment has those that are not given."""

    @classmethod
    def parse(
        cls, text: str | os.PathLike[str], what: str = "table", storage_options: Mapping[str, str] | None = None
    ) -> Location:
        """Raises ConfigError, which calls the location the one of a `what`."""
        given = os.fspath(text)
        if not given:
            raise ConfigError(f"the path of the {what} is empty")
        scheme, separator, rest = given.partition("://")
        if separator and scheme.lower() in _S3:
            bucket, _, prefix = rest.strip("/").partition("/")
            if not bucket:
                raise ConfigError(f"{given!r} has no bucket; the path of a {what} looks like s3://bucket/{what}")
            return cls(f"s3://{bucket}/{prefix}".rstrip("/"), dict(storage_options or {}))
        if storage_options:
            raise ConfigError(f"storage options are for object stores, and the {what} {given!r} is a directory")
        return cls(str(_directory(given, what)))

    @property
    def is_local(self) -> bool:
        return self.url.startswith("/")

    @property
    def path(self) -> Path:
        """Only if it is local."""
        assert self.is_local, f"{self.url} is no directory"
        return Path(self.url)

    @property
    def spark_url(self) -> str:
        """As Spark expects it: unlike in a URI, nothing is escaped."""
        return f"file://{self.url}" if self.is_local else f"s3a://{self.url.removeprefix('s3://')}"

    @property
    def digest(self) -> str:
        """A short name for directories of this location elsewhere."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]

    @cached_property
    def store(self) -> S3Store:
        """The object store. Only if it is not local."""
        from obstore.store import S3Store

        assert not self.is_local, self.url
        config: Any = {  # obstore declares each name; a wrong one is an error of obstore
            name.lower().removeprefix(_OPTION_PREFIX): value for name, value in self.storage_options.items()
        }
        allow_http = config.pop(_ALLOW_HTTP, "false").lower() == "true"
        return S3Store.from_url(self.url, config=config, client_options={_ALLOW_HTTP: True} if allow_http else None)

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.url}/{name}", self.storage_options)

    def __getstate__(self) -> dict[str, Any]:
        """For the executors: without the store, which connects."""
        return {"url": self.url, "storage_options": self.storage_options}

    def __str__(self) -> str:
        return self.url


def _directory(given: str, what: str) -> Path:
    scheme, colon, rest = given.partition(":")
    if colon and scheme.lower() == "file":
        given = "/" + rest.lstrip("/")
    elif "://" in given:
        raise ConfigError(
            f"{given!r}: a {what} needs a directory that driver and executors share, or S3 (s3://bucket/{what}). "
            f"Files must be created exclusively, and {scheme}: is not known to support that"
        )
    if _GLOB_CHARACTERS & set(given):
        raise ConfigError(
            f"{given!r} has one of {' '.join(sorted(_GLOB_CHARACTERS))} in it, which Spark reads as a pattern"
        )
    return Path(given).absolute()


def user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"
