"""Of the package `tools`."""
