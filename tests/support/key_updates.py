"""A TLS 1.3 peer that does what Python's ssl cannot be asked to: it asks for new keys, again and again.

The calls are those of the OpenSSL that Python itself is linked with.
"""

from __future__ import annotations

import _ssl
import ctypes
import socket

_CALLS = {
    "TLS_client_method": (ctypes.c_void_p, ()),
    "SSL_CTX_new": (ctypes.c_void_p, (ctypes.c_void_p,)),
    "SSL_CTX_free": (None, (ctypes.c_void_p,)),
    "SSL_new": (ctypes.c_void_p, (ctypes.c_void_p,)),
    "SSL_free": (None, (ctypes.c_void_p,)),
    "SSL_set_fd": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)),
    "SSL_connect": (ctypes.c_int, (ctypes.c_void_p,)),
    "SSL_write": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)),
    "SSL_key_update": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)),
    "SSL_do_handshake": (ctypes.c_int, (ctypes.c_void_p,)),
}
_REQUESTED = 1
"""The other side is to have new keys as well, and answers."""


class KeyUpdater:
    """Reads nothing. Trusts everybody: it is no client to learn from."""

    def __init__(self, peer: socket.socket) -> None:
        self._calls = ctypes.CDLL(_ssl.__file__)
        for name, (result, arguments) in _CALLS.items():
            call = getattr(self._calls, name)
            call.restype, call.argtypes = result, arguments
        self._socket = peer
        self._context = self._calls.SSL_CTX_new(self._calls.TLS_client_method())
        self._ssl = self._calls.SSL_new(self._context)
        self._calls.SSL_set_fd(self._ssl, peer.fileno())
        assert self._calls.SSL_connect(self._ssl) == 1, "no TLS"

    def write(self, data: bytes) -> None:
        assert self._calls.SSL_write(self._ssl, data, len(data)) == len(data)

    def ask_for_new_keys(self) -> bool:
        """Whether it could be sent."""
        calls = self._calls
        return bool(calls.SSL_key_update(self._ssl, _REQUESTED) == 1 and calls.SSL_do_handshake(self._ssl) == 1)

    def close(self) -> None:
        self._calls.SSL_free(self._ssl)
        self._calls.SSL_CTX_free(self._context)
        self._socket.close()
