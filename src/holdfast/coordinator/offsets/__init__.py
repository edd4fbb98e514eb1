"""Committed offsets."""
