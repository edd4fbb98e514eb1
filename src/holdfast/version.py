"""The one place that says which Holdfast this is."""

VERSION = "0.1.0.dev0"
