"""Of the package `common.settings`."""
