"""Which source cluster a run copies from, in single and in failover mode (`source.mode`)."""
