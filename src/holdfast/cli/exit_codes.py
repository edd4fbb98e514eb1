"""What the exit codes of `holdfast` mean."""

from typing import Final

EXIT_OK: Final = 0

#: What the operator can put right: a bad option, a bad config, a directory or a port that cannot be had.
EXIT_USAGE: Final = 2

#: Interrupted a second time while stopping; as a shell reports a process that SIGINT ended.
EXIT_INTERRUPTED: Final = 130
