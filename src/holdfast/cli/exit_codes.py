"""The exit codes of `holdfast`."""

from typing import Final

EXIT_OK: Final = 0

#: The command failed, or failed in part; stderr says what and why.
EXIT_FAILED: Final = 1

#: The user can correct it: a bad option, a bad config, a directory or a port that is not available.
EXIT_USAGE: Final = 2

#: As a shell reports a process that SIGINT ended. `serve` shuts down cleanly at the first SIGINT and exits with this
#: code at the second.
EXIT_INTERRUPTED: Final = 130

#: As a shell reports a process that was ended by SIGPIPE: the reader of our output has exited.
EXIT_BROKEN_PIPE: Final = 141

#: As a shell reports a process that SIGTERM ended.
EXIT_TERMINATED: Final = 143
