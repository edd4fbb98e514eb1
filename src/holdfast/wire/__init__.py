"""Kafka's bytes: message definitions, their codecs, headers and record batches.

Nothing in here opens a socket, reads a clock or draws a random number.
"""
