"""Kafka's bytes: message definitions, their codecs, headers and record batches.

This package does no I/O and uses neither a clock nor random numbers.
"""
