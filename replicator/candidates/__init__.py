"""Several source clusters with the same records (`source.mode=failover`): which one is copied."""
