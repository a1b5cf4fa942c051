"""Of the package `reo`."""
