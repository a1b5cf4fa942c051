"""Needs more than brokers: Spark or the whole service, PostgreSQL, the wheel, or a tool such as
helm, a C compiler or Prometheus.
"""
