"""Kafka for both stages: clients, topics, the consumer group, positions, permissions."""
