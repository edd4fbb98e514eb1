"""Ports of the loopback that stay ours while nobody listens on them."""

import socket

HOST = "127.0.0.1"
_RANGE_ATTEMPTS = 100


def held_port(port: int = 0) -> socket.socket:
    """A socket on this port, or on a free one, that does not listen.

    The kernel gives the port to nobody who asks for any. A server that asks for this one can have it all the same, and
    again after its end: both sockets say SO_REUSEADDR, as servers do. Who connects meanwhile is refused.
    """
    held = socket.socket()
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((HOST, port))
    except OSError:
        held.close()
        raise
    return held


def held_port_range(count: int) -> list[socket.socket]:
    """So many held ports in a row, in order."""
    for _ in range(_RANGE_ATTEMPTS):
        held = [held_port()]
        first: int = held[0].getsockname()[1]
        try:
            for port in range(first + 1, first + count):
                held.append(_unheld_port(port))
            return held
        except (OSError, OverflowError):  # one of them is somebody else's, or there is no such port
            for one in held:
                one.close()
    raise OSError(f"there are no {count} free ports in a row")


def _unheld_port(port: int) -> socket.socket:
    """Like `held_port`, but refused if another test holds the port: it is taken alone, and shared afterwards."""
    held = socket.socket()
    try:
        held.bind((HOST, port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except (OSError, OverflowError):
        held.close()
        raise
    return held
