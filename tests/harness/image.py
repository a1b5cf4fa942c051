"""The image, tried out: `build/image-check` runs this on what it has built. Every container is
locked down as the manifests for Kubernetes lock pods down, between two real brokers of this machine
(and a PostgreSQL server, where one is installed); the judge says whether a copy is exact.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer

from tests.harness import copy_judge, postgresql
from tests.harness.containers import (
    IMAGE,
    container,
    docker,
    is_healthy,
    kill_stage_one,
    pod,
    read_exit_code,
    read_memory_usage,
    start_container,
)
from tests.harness.image_contents import check_contents
from tests.harness.kafka import ROOT, Cluster
from tests.harness.kubernetes_api import DRIVER, KubernetesApi
from tools.demo.broker import Broker, free_port

RECORDS, PARTITIONS = 5000, 3
COPY_S = 90


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


class Checks:
    """Two clusters, the containers between them, and what did not hold."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        """Start the brokers; all ends with `stack`."""
        self.stack, self.folder, self.failed, self.written = stack, folder, list[str](), 0
        self.name = f"reo-check-{os.getpid()}"
        brokers = [
            Broker(folder / side, ROOT / "jars" / "broker") for side in ("source", "destination")
        ]
        for broker in brokers:
            stack.callback(broker.kill)
            broker.start()
        self.source, self.destination = (Cluster(broker.wait()) for broker in brokers)
        self.source.create("orders", PARTITIONS)
        self.environment = {
            "KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS": self.source.address,
            "KAFKA_CLUSTERS_SOURCE_TOPIC": "orders",
            "KAFKA_CLUSTERS_DESTINATION_BOOTSTRAP_SERVERS": self.destination.address,
            "KAFKA_CLUSTERS_DESTINATION_TOPIC": "copy",
            "REO_METRICS_PORT": free_port(),
            "REO_INSTANCE": "image-check",
        }

    def check(self, what: str, held: bool, seen: object = "") -> None:
        """Say it, and remember what did not hold."""
        print(f"{'ok  ' if held else 'FAIL'} {what}{f': {seen}' if seen != '' else ''}", flush=True)
        if not held:
            self.failed.append(what)

    def ends(self, what: str, code: int, *words: str, **changes: object) -> None:
        """A container that ends by itself."""
        done = docker("run", "--rm", *container(self.environment | changes, *words))
        self.check(
            f"{what} ends with exit code {code}",
            done.returncode == code,
            f"{done.returncode},"
            f" {((done.stdout + done.stderr).strip().splitlines() or [''])[-1][:150]}",
        )

    def start(self, part: str, *words: str, **changes: object) -> None:
        """A container that runs, and is taken away in the end."""
        self.stack.callback(docker, "rm", "-f", f"{self.name}-{part}")
        started = start_container(f"{self.name}-{part}", self.environment | changes, *words)
        self.check(f"{part} starts", started.returncode == 0, started.stderr.strip())

    def stop(self, part: str) -> None:
        """SIGTERM, and what came of it."""
        began = time.monotonic()
        docker("stop", "-t", "20", f"{self.name}-{part}")
        took = time.monotonic() - began
        code = read_exit_code(f"{self.name}-{part}")
        self.check(
            f"SIGTERM ends {part} within 10 s with exit code 0",
            took < 10 and code == 0,
            f"{took:.1f} s, exit code {code}",
        )
        if self.failed:
            print(docker("logs", f"{self.name}-{part}").stderr[-3000:])

    def produce(self, codec: str) -> None:
        """Keys and values that are null or empty, repeated and null-valued headers, timestamps of
        the past.
        """
        producer = Producer(
            {
                "bootstrap.servers": self.source.address,
                "linger.ms": 20,
                "log_level": 0,
                "compression.type": codec,
            }
        )
        for n in range(self.written, self.written + RECORDS):
            producer.produce(
                "orders",
                None if n % 7 == 0 else b"" if n % 7 == 1 else b"value %d" % n,
                None if n % 5 == 0 else b"key %d" % n,
                n % PARTITIONS,
                timestamp=1_500_000_000_000 + n * 1000,
                headers=[("n", b"%d" % n), ("n", None), ("é", b"")] if n % 3 else None,
            )
        producer.flush(30)
        self.written += RECORDS

    def check_copy(self, by: str) -> None:
        """Wait for all that was written, and ask the judge."""
        began = time.monotonic()

        def is_whole() -> bool:
            try:
                return (
                    sum(map(len, copy_judge.read_topic(self.destination.address, "copy").values()))
                    >= self.written
                )
            except KeyError:
                return False

        self.check(
            f"{RECORDS} records are copied by {by}",
            until(is_whole, COPY_S),
            f"{time.monotonic() - began:.1f} s",
        )
        wrong = copy_judge.compare_partitions(
            copy_judge.read_topic(self.source.address, "orders"),
            copy_judge.read_topic(self.destination.address, "copy"),
        )
        self.check("the judge says that the copy is exact", not wrong, "; ".join(wrong))

    def one_container_after_another(self) -> None:
        """The second one starts with nothing on disk, where the first one stopped."""
        for life, codec in ((1, "zstd"), (2, "snappy")):
            part = f"container-{life}"
            self.produce(codec)
            self.start(part)
            self.check_copy(part)
            self.check(
                "it is healthy",
                until(lambda part=part: is_healthy(f"{self.name}-{part}"), 60),
            )
            if life == 1:
                done = kill_stage_one(f"{self.name}-{part}")
                self.check(
                    "after SIGKILL to stage one no dead process is left over",
                    done.stdout.strip() == "1 killed, 0 dead",
                    done.stdout + done.stderr,
                )
            self.stop(part)

    def stages_apart(self) -> None:
        """As deploy/kubernetes has them: stage two in two containers."""
        apart = {
            "replicator": "replicator",
            "deduplicator-0": "deduplicator",
            "deduplicator-1": "deduplicator",
        }
        self.produce("lz4")
        for part, stage in apart.items():
            self.start(
                part,
                "run",
                stage,
                REO_INSTANCE=part,
                REO_METRICS_PORT=free_port(),
                REO_LOG_FORMAT="json",
            )
        self.check_copy("three containers")
        for part in apart:
            self.stop(part)
            logs = docker("logs", f"{self.name}-{part}")
            said = [line for line in (logs.stdout + logs.stderr).splitlines() if line]
            self.check(
                f"every line of {part} is an event",
                bool(said)
                and all(
                    {"time", "level", "stage", "event"} <= set(json.loads(line)) for line in said
                ),
            )

    def executors_in_pods(self) -> None:
        """As deploy/kubernetes/executors has them: Spark's scheduler in one container asks a
        stand-in of Kubernetes' API for others of the same image.
        """
        options = {
            "spark_kubernetes_container_image": IMAGE,
            "spark_kubernetes_driver_pod_name": DRIVER,
            "spark_driver_host": "127.0.0.1",
            "spark_kubernetes_executor_enableApiWatcher": "false",
            "spark_kubernetes_executor_apiPollingInterval": "500ms",
        }
        self.produce("gzip")
        with KubernetesApi(self.folder / f"{self.name}-pods", pod) as api:
            self.start(
                "driver",
                REO_REPLICATOR_MASTER=api.url,
                SPARK_LOCAL_IP="127.0.0.1",
                **{f"REO_REPLICATOR_SPARK_OPTIONS_{name}": text for name, text in options.items()},
            )
            self.check_copy("executors in containers of their own")
            names = [asked.folder.name for asked in api.pods]
            used = read_memory_usage(f"{self.name}-driver", *names)
            self.check("there are two of them", len(names) == 2, "; ".join(filter(None, used)))
            self.stop("driver")
            self.check(
                "they end with their driver",
                until(lambda: all(asked.process.poll() is not None for asked in api.pods), 30),
            )

    def into_postgresql(self) -> None:
        """Rows instead of records; where there is no server, it is said."""
        if not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
            print("     PostgreSQL is not installed here (make postgresql): not tried")
            return
        server = postgresql.Server().make().start()
        self.stack.callback(server.end)
        self.ends(
            "a copy to PostgreSQL",
            0,
            "run",
            "--stop-at-end",
            REO_DESTINATION_CLASS=postgresql.STORE,
            REO_DESTINATION_CONNECTION=server.connection(),
            REO_APPLICATION="to-tables",
            KAFKA_CLUSTERS_DESTINATION_TOPIC="rows",
        )
        wrong = copy_judge.compare_partitions(
            copy_judge.read_topic(self.source.address, "orders"), server.read("rows", PARTITIONS)
        )
        self.check("the judge says that the rows are exact", not wrong, "; ".join(wrong))


def main() -> int:
    """Everything, in order; the exit code."""
    with ExitStack() as stack:
        checks = Checks(
            stack, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reo-image-")))
        )
        checks.ends("a missing setting", 2, KAFKA_CLUSTERS_SOURCE_TOPIC="")
        checks.ends(
            "an address where nobody answers",
            10,
            KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS="127.0.0.1:1",
            REO_CONNECT_TIMEOUT_S=5,
        )
        checks.ends("an executor that Spark has not started", 2, "executor")
        checks.ends("`check` before a copy", 0, "check")
        checks.one_container_after_another()
        checks.stages_apart()
        checks.executors_in_pods()
        checks.ends("`verify` in the image", 0, "verify")
        checks.into_postgresql()
        check_contents(checks.check)
        return bool(checks.failed)


if __name__ == "__main__":
    raise SystemExit(main())
