"""Needs nothing but Python: no broker, no JVM, no database, no service."""
