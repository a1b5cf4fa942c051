"""The tests. Those that need a cluster use two real single-node brokers (`tests.conftest`), never a fake."""
