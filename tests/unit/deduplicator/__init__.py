"""Of the package `deduplicator`."""
