"""Comparing a copy with its source: record by record, in parallel, compacted topics, tables."""
