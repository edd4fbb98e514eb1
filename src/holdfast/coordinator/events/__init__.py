"""The events of a group and their causes."""
