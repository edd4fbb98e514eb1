"""Acting while another thread waits in a connection."""

import threading
from collections.abc import Callable

from holdfast.client.connection import Connection
from tests.support.eventually import eventually


def in_another_thread(call: Callable[[], None], when: Callable[[], bool]) -> threading.Thread:
    """Calls it as soon as the condition holds."""

    def run() -> None:
        eventually(when, "the condition for the call")
        call()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def is_waiting(connection: Connection) -> bool:
    """Whether a thread is inside the connection."""
    free = connection._lock.acquire(blocking=False)
    if free:
        connection._lock.release()
    return not free
