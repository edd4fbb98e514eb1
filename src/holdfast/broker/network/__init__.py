"""Listeners, connections, TLS, framing, replies, and the memory that requests may take."""
