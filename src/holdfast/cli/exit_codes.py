"""What the exit codes of `holdfast` mean."""

from typing import Final

EXIT_OK: Final = 0

#: Something that was asked for was not done, or not all of it; stderr says what and why.
EXIT_FAILED: Final = 1

#: What the operator can put right: a bad option, a bad config, a directory or a port that cannot be had.
EXIT_USAGE: Final = 2

#: As a shell reports a process that SIGINT ended. `serve` ends in order at the first one, and so at the second.
EXIT_INTERRUPTED: Final = 130

#: As a shell reports a process that SIGPIPE ended: whoever read our output has gone.
EXIT_BROKEN_PIPE: Final = 141

#: As a shell reports a process that SIGTERM ended.
EXIT_TERMINATED: Final = 143
