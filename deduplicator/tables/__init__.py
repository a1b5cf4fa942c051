"""PostgreSQL as the destination: the tables of a copy, in place of topics."""
