"""Of the package `replicator`."""
