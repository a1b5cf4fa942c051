"""Another process with this worker's name: application, instance and number. Both have the same
transactional ids and the same `group.instance.id`, so Kafka lets only the newer one work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaException

from common.errors import Fenced
from common.kafka.clients import build_instance_id, create_admin_client
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.settings import Settings


@contextmanager
def explain_fenced(settings: Settings, worker: int) -> Iterator[None]:
    """Name the other process, and its host if that is known, in a Fenced error."""
    try:
        yield
    except Fenced as fenced:
        host = _find_host(settings, build_instance_id(settings, worker))
        raise Fenced(
            f"{fenced}. Another process with application {settings.application} and instance"
            f" {settings.instance} runs{f' on {host}' if host else ''}, or did a moment ago",
            Fenced.default_to_do,
        ) from None


def _find_host(settings: Settings, instance_id: str) -> str | None:
    """The host of the static member with this name; None when it is not in the group yet."""
    client = create_admin_client(settings.destination_cluster, settings)
    with suppress(KafkaException):
        group = client.describe_consumer_groups(
            [settings.application], request_timeout=REQUEST_TIMEOUT_S
        )[settings.application].result()
        for member in group.members:
            if member.group_instance_id == instance_id:
                return str(member.host).removeprefix("/")
    return None
