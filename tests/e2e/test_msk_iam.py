"""Amazon MSK with IAM, as far as a machine without one can show it: brokers that check form,
signature, region and expiry of each token, and close a connection whose token is over. The settings
alone: tests/unit/common/settings/test_security_settings.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replicator.spark import connector_jars
from tests.conftest import Start
from tests.harness.commands import reo_with
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.msk import CREDENTIALS, JAVA, PYTHON, MskCluster, copy_jars, write_site
from tests.harness.secured import Certificates
from tests.harness.service import build_environment, stopped
from tests.harness.spark_cluster import HERE, SparkCluster, jar_names

RECORDS = 300
PARTITIONS = 2
RENEWAL_S = 120
EARLY = [
    f"REO_{options}_OPTIONS_SASL_LOGIN_REFRESH_WINDOW_FACTOR"
    for options in ("SOURCE_CONSUMER", "INTERMEDIATE_PRODUCER")
]
"""Java then renews a token when half of its life is over."""
REGIONS = ("eu-central-1", "us-east-1")


@pytest.fixture(scope="module")
def msk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[MskCluster]]:
    """A source and a destination, in two regions."""
    folder = tmp_path_factory.mktemp("msk")
    certificates = Certificates(folder / "certificates")
    clusters: list[MskCluster] = []
    try:
        clusters += [MskCluster(folder / region, certificates, region) for region in REGIONS]
        yield clusters
    finally:
        for one in clusters:
            one.cluster.broker.kill()


@pytest.fixture
def environment(msk: list[MskCluster], topic: str, tmp_path: Path) -> dict[str, str]:
    """Of a service between the two, whose tokens are over soon."""
    source, destination = msk
    source.cluster.create(topic, PARTITIONS)
    found = build_environment(
        Clusters(source.cluster, destination.cluster), topic, {"log_level": "DEBUG"}
    )
    authority = source.certificates.authority
    for side, one in (("SOURCE", source), ("DESTINATION", destination)):
        found |= {
            f"REO_{side}_BOOTSTRAP_SERVERS": one.address,
            f"REO_{side}_SECURITY_PROTOCOL": "SASL_SSL",
            f"REO_{side}_SASL_MECHANISM": "AWS_MSK_IAM",
            f"REO_{side}_SASL_AWS_REGION": one.region,
            f"REO_{side}_SSL_CA_FILE": str(authority),
        }
    return (
        found
        | CREDENTIALS
        | {
            "AWS_EC2_METADATA_DISABLED": "true",
            **dict.fromkeys(EARLY, "0.5"),
            "PYTHONPATH": str(write_site(tmp_path / "site")),
            "REO_JARS": str(copy_jars(connector_jars.get_jars_folder(), tmp_path / "jars")),
        }
    )


def test_all_clients_sign_and_renew_their_tokens(
    msk: list[MskCluster], topic: str, start: Start, environment: dict[str, str]
) -> None:
    """Consumers, producers, admin clients and readers of librdkafka, and Spark's clients, each for
    the region of its cluster; the copy is exact, also with the tokens after the first ones, and no
    secret is in the log.
    """
    source, destination = msk
    source.cluster.write(topic, make_records(range(RECORDS), PARTITIONS))
    service = start(topic, environment=environment)
    copy = Clusters(source.cluster, destination.cluster)
    copy.wait_for_copy(topic, RECORDS)
    signers = [(one, by) for one in msk for by in (PYTHON, JAVA)]
    before = [one.count_tokens(by) for one, by in signers]
    assert all(before), before

    written = RECORDS

    def are_renewed() -> bool:
        # a client that sends nothing shows no token
        nonlocal written
        source.cluster.write(topic, make_records(range(written, written + 10), PARTITIONS))
        written += 10
        copy.wait_for_copy(topic, written)
        now = [one.count_tokens(by) for one, by in signers]
        return all(count > known for count, known in zip(now, before, strict=True))

    until(are_renewed, "new tokens of both signers for both clusters", RENEWAL_S)
    assert not service.crashes
    for one in msk:
        assert {region for _, region, _ in one.list_tokens()} == {one.region}
    for secret in (CREDENTIALS["AWS_SECRET_ACCESS_KEY"], CREDENTIALS["AWS_SESSION_TOKEN"]):
        assert secret not in service.log


@pytest.mark.long
def test_executors_elsewhere_sign_with_their_own_credentials(
    msk: list[MskCluster],
    topic: str,
    start: Start,
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They get AWS's library from the driver, and no credentials: those are the workers'."""
    for name, value in (HERE | CREDENTIALS).items():
        monkeypatch.setenv(name, value)
    source, destination = msk
    source.cluster.write(topic, make_records(range(RECORDS), PARTITIONS))
    with SparkCluster(tmp_path / "spark") as workers:
        on_cluster = {"REO_REPLICATOR_MASTER": workers.url, "REO_REPLICATOR_MEMORY_MB": "512"}
        start(topic, environment=environment | on_cluster)
        Clusters(source.cluster, destination.cluster).wait_for_copy(topic, RECORDS)
        assert any(name.startswith(JAVA) for name in jar_names(workers.folder))


def test_who_has_no_credentials_is_told(
    start: Start, topic: str, environment: dict[str, str]
) -> None:
    """Exit code 12, with where AWS's chain looks; and with a wrong key what the broker said."""
    without = {name: text for name, text in environment.items() if name not in CREDENTIALS}
    service = start(topic, "deduplicator", environment=without | {"HOME": "/nowhere"})
    stopped(service, 12, "AccessRefused", "there are no AWS credentials", "AWS_PROFILE")
    wrong = environment | {"AWS_SECRET_ACCESS_KEY": "another"}
    assert "invalid_token" in reo_with(wrong, "lag", exit_code=12).stderr
