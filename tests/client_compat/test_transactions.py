"""Holdfast has no transactions, and says so at once instead of letting the client wait."""

import subprocess
import time

import pytest

from tests.client_compat.client import DEADLINE_S, LibraryClient, Record, read, values
from tests.client_compat.errors import REFUSALS, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, error_code
from tests.client_compat.kcat_client import PATIENCE, kcat_path
from tests.support.holdfast_broker import HoldfastBroker

SOON_S = 30
"""Clients that are asked to try again do so for a minute."""


def test_a_transactional_id_is_refused_for_good(holdfast: HoldfastBroker, library: LibraryClient, topic: str) -> None:
    # The control: the same client without transactions is served. It comes first, as starting a JVM is not measured.
    library.produce(holdfast.bootstrap, topic, [Record(value=b"plain")])
    assert values(read(library, holdfast.bootstrap, topic, 1)) == [b"plain"]

    began = time.monotonic()
    with pytest.raises(REFUSALS) as refused:
        library.begin_transaction(holdfast.bootstrap, topic)

    assert time.monotonic() - began < SOON_S
    assert error_code(refused.value) == TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.real
@pytest.mark.usefixtures("needs_kcat")
def test_kcat_reports_why(holdfast: HoldfastBroker, topic: str) -> None:
    command = [kcat_path(), "-b", holdfast.bootstrap, *PATIENCE, "-P", "-t", topic, "-X", "transactional.id=tx"]

    done = subprocess.run(command, input=b"x\n", capture_output=True, timeout=DEADLINE_S, check=False)

    assert done.returncode != 0
    assert b"Transactional Id authorization failed" in done.stderr
