"""The shell around the pure parts: sockets, handlers, topics, producer ids, timers."""
