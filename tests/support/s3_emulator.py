"""An S3 on loopback, by moto, in a process of its own. `python -m tests.support.s3_emulator` prints its port."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3

from tests.support.child_process import end_child, start_child
from tests.support.eventually import eventually

PATIENCE_S = 60.0
_PORT = re.compile(r"port (\d+)\.")
_ACCESS = {"AWS_ACCESS_KEY_ID": "holdfast", "AWS_SECRET_ACCESS_KEY": "holdfast", "AWS_REGION": "us-east-1"}


@dataclass
class S3Emulator:
    url: str
    _names: Iterator[int] = field(default_factory=itertools.count)

    @property
    def options(self) -> dict[str, str]:
        """As storage options, and as environment variables."""
        return {**_ACCESS, "AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true"}

    def new_bucket(self) -> str:
        name = f"bucket-{next(self._names)}"
        self.client().create_bucket(Bucket=name)
        return name

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=_ACCESS["AWS_REGION"],
            aws_access_key_id=_ACCESS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=_ACCESS["AWS_SECRET_ACCESS_KEY"],
        )

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [one["Key"] for page in pages for one in page.get("Contents", ())]


@contextlib.contextmanager
def s3_emulator() -> Iterator[S3Emulator]:
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "output"
        child = start_child([sys.executable, "-m", "tests.support.s3_emulator"], output)
        try:
            (port,) = eventually(lambda: _PORT.findall(output.read_text()), "the port of the S3 emulator", PATIENCE_S)
            yield S3Emulator(f"http://127.0.0.1:{port}")
        finally:
            end_child(child, signal.SIGKILL, PATIENCE_S)


def _serve() -> None:
    """moto checks the condition of a write and writes in two steps, so one request is served at a time."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()

    def serialized(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with one_at_a_time:
            body: Iterable[bytes] = app(environ, start_response)
            return list(body)

    server = make_server("127.0.0.1", 0, serialized, threaded=True)
    print(f"port {server.server_port}.", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve()
