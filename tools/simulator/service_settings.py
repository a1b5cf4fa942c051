"""The settings that the service gets in a schedule, as environment variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common import settings as settings_module
from common.settings import Settings

if TYPE_CHECKING:
    from tools.simulator.clusters import Clusters

PATTERN = r"^orders(.*)=copy\1"
FUNCTION = "tools.simulator.record_filter:is_record_copied"


def build_settings(clusters: Clusters, filter_sql: str) -> Settings:
    """The settings of a plan, with this `filter.sql`."""
    plan, routes = clusters.plan, clusters.routes
    environment = {
        "REO_SOURCE_BOOTSTRAP_SERVERS": "source:9092",
        "REO_DESTINATION_BOOTSTRAP_SERVERS": "destination:9092",
        "REO_APPLICATION": "reo",
        "REO_INSTANCE": "host",
        "REO_SOURCE_START": plan.start,
        "REO_STOP_AT_END": str(plan.stop_at_end).lower(),
        "REO_REPLICATOR_BATCH_S": str(plan.batch_s),
        "REO_DEDUPLICATOR_TRANSACTION_TIMEOUT_MS": "20000",
        "REO_DEDUPLICATOR_TRANSACTION_RECORDS": "10",
        "REO_METRICS_PORT": "0",
        "REO_DEDUPLICATOR_COMPILED": str(plan.is_compiled).lower(),
    }
    if plan.has_pattern:
        environment["REO_TOPICS"] = PATTERN
    elif plan.topics > 1 or plan.first_partition:
        environment["REO_TOPICS"] = ",".join(
            f"{route.source_topic}{route.partitions}={route.destination_topic}" for route in routes
        )
    else:
        environment |= {
            "REO_SOURCE_TOPIC": routes[0].source_topic,
            "REO_DESTINATION_TOPIC": routes[0].destination_topic,
        }
    if clusters.candidates:
        environment |= {
            "REO_SOURCE_BOOTSTRAP_SERVERS": ";".join(
                f"{cluster.name}:9092" for cluster in clusters.candidates
            ),
            "REO_SOURCE_MODE": "failover",
            "REO_SOURCE_OFFSET_LAG_THRESHOLD": "20",
        }
    if plan.filter_setting == "filter.function":
        environment["REO_FILTER_FUNCTION"] = FUNCTION
    if filter_sql:
        environment["REO_FILTER_SQL"] = filter_sql
    return settings_module.load(environment)
