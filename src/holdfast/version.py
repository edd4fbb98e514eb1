"""The version of Holdfast."""

VERSION = "0.1.0.dev0"
