"""Of the package `common.kafka`."""
