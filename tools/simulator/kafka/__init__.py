"""A simulated Kafka: the brokers' state and the clients of confluent-kafka, on the simulator's
virtual clock.

The state of a cluster is plain data (`log`, `transactions`, `groups`, combined in `cluster`), and
each request is one step on it. Latency, loss and retries are in `network`. The clients (`consumer`,
`producer`, `admin`) do what librdkafka does with an answer, or without one; their error codes and
flags are those of librdkafka, and `tests/broker/test_simulated_kafka.py` compares all of it with
real brokers.
"""

from tools.simulator.kafka.cluster import Cluster
from tools.simulator.kafka.network import Network, RequestOutcome, clients

__all__ = ["Cluster", "Network", "RequestOutcome", "clients"]
