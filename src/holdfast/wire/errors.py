"""The error for malformed bytes and for messages that cannot be encoded."""


class WireError(Exception):
    """The bytes are malformed, or a version cannot encode the message."""
