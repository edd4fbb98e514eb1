"""Where a pipeline stores its table or state: a directory that driver and executors share, or a prefix in S3.

Both need an operation that creates a file only if it does not exist. A POSIX file system has hard links, and S3 has
conditional writes (`If-None-Match`).
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.client.errors import ConfigError
from holdfast.extras import check_installed

if TYPE_CHECKING:
    from obstore.store import S3Store

_GLOB_CHARACTERS: Final = frozenset("*?[]{}\\")
_S3: Final = ("s3", "s3a")
_OPTION_PREFIX: Final = "AWS_"
_ALLOW_HTTP: Final = "AWS_ALLOW_HTTP"
_OPTIONS: Final = frozenset(
    f"{_OPTION_PREFIX}{name.upper()}"
    for name in (
        *("access_key_id", "secret_access_key", "session_token", "token", "skip_signature", "unsigned_payload"),
        *("region", "default_region", "endpoint", "endpoint_url", "allow_http"),
        *("virtual_hosted_style_request", "s3_express", "request_payer", "conditional_put", "copy_if_not_exists"),
        *("checksum_algorithm", "disable_tagging", "disable_bulk_delete", "server_side_encryption"),
        *("sse_kms_key_id", "sse_bucket_key_enabled", "sse_customer_key_base64"),
        *("imdsv1_fallback", "metadata_endpoint", "role_arn", "role_session_name"),
        *("web_identity_token_file", "container_credentials_relative_uri", "container_credentials_full_uri"),
        *("container_authorization_token_file",),
    )
)
"""obstore panics on some names that it does not know."""
_CONNECT_TIMEOUT: Final = timedelta(seconds=5)
_RETRY: Final = {
    "retry_timeout": timedelta(seconds=15),
    "max_retries": 100,
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=4), "base": 2},
}
"""A store that cannot be reached is an error after about 15 s, and not after three minutes. A query is started again
anyway, and in the meantime it holds its partitions."""


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
            check_installed(f"a {what} in S3", ["obstore"])
            if not bucket:
                raise ConfigError(f"{given!r} has no bucket; the path of a {what} looks like s3://bucket/{what}")
            location = cls(f"s3://{bucket}/{prefix}".rstrip("/"), dict(storage_options or {}))
            location._check_options()
            return location
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
        assert not self.is_local, self.url
        return self._connect()

    def _connect(self) -> S3Store:
        return _connected(self.url, tuple(sorted(self.storage_options.items())))

    def _check_options(self) -> None:
        from obstore.exceptions import BaseError

        for name in self.storage_options:
            if name.upper() not in _OPTIONS:
                similar = difflib.get_close_matches(name.upper(), sorted(_OPTIONS), 1)
                hint = f"; did you mean {similar[0]}?" if similar else ", for example AWS_ENDPOINT_URL or AWS_REGION"
                raise ConfigError(
                    f"the storage option {name!r} is unknown: the names are those of the environment variables{hint}"
                )
        try:
            self._connect()
        except BaseError as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError(f"the storage options for {self.url} are not valid: {reason}") from error

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.url}/{name}", self.storage_options)

    def __getstate__(self) -> dict[str, Any]:
        """For the executors: without the store, which connects."""
        return {"url": self.url, "storage_options": self.storage_options}

    def __str__(self) -> str:
        return self.url


@lru_cache(maxsize=16)
def _connected(url: str, options: tuple[tuple[str, str], ...]) -> S3Store:
    """One store of each kind in a process, because it has the open connections."""
    from obstore.store import S3Store

    given = {name.upper(): value for name, value in options}
    client_options: Any = {"connect_timeout": _CONNECT_TIMEOUT}
    if _ALLOW_HTTP in given:
        client_options["allow_http"] = given.pop(_ALLOW_HTTP).lower() == "true"
    # obstore declares the type of each name; the names are checked above
    config: Any = {name.lower(): value for name, value in given.items()}
    retry: Any = _RETRY
    return S3Store.from_url(url, config=config, client_options=client_options, retry_config=retry)


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
