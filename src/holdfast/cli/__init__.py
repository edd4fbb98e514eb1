"""The `holdfast` command: one file per subcommand."""
