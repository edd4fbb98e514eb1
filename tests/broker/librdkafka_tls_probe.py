"""librdkafka in a process of its own, whose OpenSSL speaks no newer TLS than a test allows.

librdkafka has no setting for that; OpenSSL takes it from the file that its environment names, once for a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

_PATIENCE_S = 30.0
_OPENSSL = """\
openssl_conf = all
[all]
ssl_conf = tls
[tls]
system_default = limits
[limits]
MinProtocol = TLSv1
MaxProtocol = {newest}
CipherString = DEFAULT:@SECLEVEL=0
"""
"""The last line: with less, OpenSSL itself would not speak what is older than TLS 1.2."""


@dataclass(frozen=True)
class TlsProbe:
    topics: list[str] | None
    """None: nothing was reported."""
    complaints: list[str]


def probe(config: Mapping[str, Any], newest: str, directory: Path) -> TlsProbe:
    """The topics that a client with these settings is shown, or why it is not; `newest` is for example TLSv1.1."""
    limits = directory / f"{newest}.cnf"
    limits.write_text(_OPENSSL.format(newest=newest))
    done = subprocess.run(
        [sys.executable, "-m", "tests.broker.librdkafka_tls_probe"],
        input=json.dumps(dict(config)),
        env=os.environ | {"OPENSSL_CONF": str(limits)},
        capture_output=True,
        text=True,
        timeout=2 * _PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return TlsProbe(**json.loads(done.stdout))


def main() -> None:
    complaints: list[str] = []

    def complain(error: KafkaError) -> None:
        complaints.append(error.str())

    client = AdminClient(json.load(sys.stdin) | {"error_cb": complain, "log_level": 0})
    topics: list[str] | None = None
    for _ in range(int(_PATIENCE_S)):
        try:
            topics = sorted(client.list_topics(timeout=1).topics)
        except KafkaException:
            client.poll(0)
        if complaints or topics is not None:
            break
    print(json.dumps({"topics": topics, "complaints": complaints}))


if __name__ == "__main__":
    main()
