"""Which API versions the brokers of a cluster support: whether they are new enough for a copy.

A broker tells every client its API versions (KIP-35). librdkafka writes them only to its log, with
`debug=feature`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from common.errors import TopicsUnfit
from common.kafka.clients import create_admin_client
from common.kafka.cluster_metadata import read_metadata
from common.kafka.cluster_requests import ask_cluster
from common.settings import Settings
from common.settings.clusters import Cluster
from reo.checks.findings import Finding, report_ok, report_warning

API_VERSION_LINE = re.compile(r"ApiKey \w+ \((\d+)\) Versions \d+\.\.(\d+)")
FETCH, OFFSET_FETCH, TXN_OFFSET_COMMIT = 1, 9, 28
"""API keys (Kafka protocol guide)."""
NEEDED = {
    "source": {FETCH: (10, "2.1")},
    "destination": {TXN_OFFSET_COMMIT: (3, "2.5"), OFFSET_FETCH: (7, "2.5")},
}
"""By API key: the version that is needed, and the first release with it (KIP-110, KIP-447)."""


@dataclass(slots=True)
class ApiVersionsLog:
    """A client's log that collects the brokers' API versions: API key → the highest version that
    all brokers support.
    """

    versions: dict[int, int] = field(default_factory=dict)

    def log(self, _level: int, form: str, *more: object) -> None:
        """Called by confluent-kafka."""
        match = API_VERSION_LINE.search(form % more if more else form)
        if match:
            api_key, version = map(int, match.groups())
            self.versions[api_key] = min(version, self.versions.get(api_key, version))


def read_api_versions(settings: Settings, cluster: Cluster) -> dict[int, int]:
    """The API versions of its brokers; empty when the client logged none."""
    client_log = ApiVersionsLog()
    client = create_admin_client(cluster, settings, debug="feature", log_level=7, logger=client_log)
    timeout_s = settings.connect_timeout_s
    # brokers send their versions when a client connects
    ask_cluster(cluster, client, timeout_s, partial(read_metadata, client))
    client.poll(0.1)  # delivers the log lines
    return client_log.versions


def check_api_versions(settings: Settings, side: str) -> Iterator[Finding]:
    """Whether the brokers are new enough; TopicsUnfit when they are not."""
    about = f"{side} brokers"
    versions = read_api_versions(
        settings, settings.source_cluster if side == "source" else settings.destination_cluster
    )
    if not versions:
        yield report_warning(
            about,
            "they did not report their API versions",
            "look up their release: the source needs Kafka 2.1, the destination 2.5",
        )
        return
    needed = NEEDED[side]
    missing_releases = [
        release
        for api_key, (version, release) in needed.items()
        if versions.get(api_key, -1) < version
    ]
    if missing_releases:
        raise TopicsUnfit(
            f"the {side} cluster's brokers are older than Kafka {max(missing_releases)},"
            " which is needed. Upgrade them"
        )
    release = max(release for _, release in needed.values())
    yield report_ok(about, f"they are new enough (at least Kafka {release})")
