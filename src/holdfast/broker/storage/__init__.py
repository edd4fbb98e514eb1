"""Topics and partitions on disk, flushing, retention and compaction, producer ids."""
