"""A server as the server_pair knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Restart = Callable[[float, Mapping[str, str]], None]
"""Killed, down for so many seconds, and started again with these settings besides its own."""


class Server:
    """What must be known of a server before a run begins."""

    def __init__(self, address: tuple[str, int], topics: Mapping[str, bytes], restart: Restart) -> None:
        self.address = address
        self.topics = topics
        """Name to id, of every topic that the runs name, those that do not exist included."""
        self.restart = restart
