"""The service that runs the group coordinator, the log of its records, and the log of its events."""
