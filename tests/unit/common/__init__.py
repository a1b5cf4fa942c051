"""Of the package `common`."""
