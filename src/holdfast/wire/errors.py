"""The one error that malformed or unencodable bytes end in."""


class WireError(Exception):
    """Bytes that are not what they claim to be, or a message that its version cannot carry."""
