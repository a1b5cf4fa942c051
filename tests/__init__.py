"""The tests, sorted by what they need. Those that need a cluster use two real single-node brokers
(`tests.conftest`), never a fake.

unit/         nothing but Python
simulation/   the simulator's own tests
broker/       real brokers, and at most one stage of the service, without Spark
e2e/          Spark or the whole service, PostgreSQL, the wheel, or another tool
harness/      no tests: what they share
"""
