"""The main job on one machine: two brokers, real records, kills, a verdict."""
