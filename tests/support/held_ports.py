"""Ports of the loopback that stay ours while nobody listens on them."""

import socket

HOST = "127.0.0.1"


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
