"""Opens TCP connections, and explains why one could not be opened."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import Any

from holdfast.client.addresses import Address
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.wire.error_codes import ErrorCode


async def connected_socket(address: Address, deadline: float) -> socket.socket:
    """Tries every address of the name in turn, until the deadline (a time of the loop). Raises KafkaUnreachable."""
    loop = asyncio.get_running_loop()
    failures = []
    found = await _resolved(address)
    for number, (family, sockaddr) in enumerate(found):
        # Leaves time for the next addresses if one drops packets.
        share_s = max(deadline - loop.time(), 0) / (len(found) - number)
        try:
            async with asyncio.timeout(share_s):
                return await _connected_to(family, sockaddr)
        except TimeoutError:  # a subclass of OSError
            why = f"no answer within {share_s:.1f} s"
        except OSError as failure:
            # Not `strerror`, which is "Connect call failed" for all errors with asyncio.
            why = os.strerror(failure.errno) if failure.errno else str(failure)
        failures.append(why if len(found) == 1 else f"{sockaddr[0]}: {why}")
    raise KafkaUnreachable(f"{address}: cannot connect: {', '.join(failures)}")


async def resolved_hosts(address: Address) -> frozenset[str]:
    """The IP addresses of the name; none if it cannot be looked up."""
    try:
        return frozenset(sockaddr[0] for _, sockaddr in await _resolved(address))
    except KafkaUnreachable:
        return frozenset()


async def _resolved(address: Address) -> list[tuple[int, Any]]:  # Any: its form depends on the family
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as failure:
        raise KafkaUnreachable(f"{address}: cannot look the name up: {failure}") from failure
    return [(family, sockaddr) for family, _, _, _, sockaddr in found]


async def _connected_to(family: int, sockaddr: Any) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A parked join transfers nothing for minutes. With keepalive, the kernel detects a peer that has disappeared.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().sock_connect(opened, sockaddr)
    except BaseException:
        opened.close()
        raise
    return opened


def handshake_error(address: Address, failure: OSError) -> KafkaUnreachable | KafkaRefused:
    """Why TLS could not be established."""
    if isinstance(failure, ssl.SSLCertVerificationError):
        return KafkaRefused(
            f"{address}: the broker's certificate is not accepted: {failure.verify_message}; "
            "see ssl.ca.location and ssl.endpoint.identification.algorithm",
            ErrorCode.SASL_AUTHENTICATION_FAILED,
        )
    if is_tls_alert(failure):
        return tls_refusal(address, failure)
    return KafkaUnreachable(f"{address}: the TLS handshake failed ({reason(failure)}); does this listener speak TLS?")


def tls_refusal(address: Address, failure: Exception) -> KafkaRefused:
    return KafkaRefused(
        f"{address}: the broker ended TLS with {reason(failure)}; "
        "see ssl.certificate.location, ssl.key.location and ssl.cipher.suites",
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    )


def is_tls_alert(failure: Exception | None) -> bool:
    return isinstance(failure, ssl.SSLError) and "ALERT" in (failure.reason or "")


def reason(failure: Exception) -> str:
    if isinstance(failure, ssl.SSLError) and failure.reason:
        return failure.reason.replace("_", " ").lower()
    return getattr(failure, "strerror", None) or str(failure) or type(failure).__name__
