"""A minimal server with Kafka's framing on this event loop: the baseline for small requests.

Reads frames of a 4-byte length and answers each with the same fixed bytes; all frames of one read are answered with one
write. It parses no headers and has no checks or limits. Run as `echo_server.py REPLY_BYTES`; prints its port.
"""

from __future__ import annotations

import asyncio
import signal
import struct
import sys
from typing import Final, cast

import uvloop

_LENGTH: Final = struct.Struct(">i")
_SCRATCH_BYTES: Final = 256 * 1024


class Echo(asyncio.BufferedProtocol):
    def __init__(self, scratch: memoryview, reply: bytes) -> None:
        self._scratch = scratch
        self._reply = reply
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by inheritance

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the buffer is as large as it is
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        data: memoryview | bytes = self._scratch[:nbytes]
        if self._rest:
            data = self._rest + bytes(data)
        position = requests = 0
        while len(data) - position >= _LENGTH.size:
            stop = position + _LENGTH.size + _LENGTH.unpack_from(data, position)[0]
            if stop > len(data):
                break
            position = stop
            requests += 1
        self._rest = bytes(data[position:])
        if requests:
            self._transport.write(self._reply * requests)


async def serve(reply_bytes: int) -> None:
    loop = asyncio.get_running_loop()
    scratch = memoryview(bytearray(_SCRATCH_BYTES))
    reply = _LENGTH.pack(reply_bytes) + bytes(reply_bytes)
    server = await loop.create_server(lambda: Echo(scratch, reply), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    await stopping.wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1])))
