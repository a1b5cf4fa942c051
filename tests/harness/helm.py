"""A real helm, the values that the tests of the chart give it, and the objects that it renders."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.harness.kafka import ROOT

HELM = shutil.which("helm", path=f"{ROOT / 'build' / '.bin'}") or shutil.which("helm") or ""
CLUSTERS = {
    "source": {"bootstrap_servers": "a:9093", "topic": "orders"},
    "destination": {"bootstrap_servers": "b:9092"},
}
LEAST = {"settings": CLUSTERS}
ALL = {
    "stages": "apart",
    "deduplicator": {"replicas": 3},
    "imagePullSecrets": [{"name": "registry"}],
    "priorityClassName": "high",
    "settings": (
        CLUSTERS
        | {
            "application": "orders-copy",
            "producer": {"delivery_timeout_ms": 604_800_001},
            "topics": {"replication_factor": 3},
            "source": (
                CLUSTERS["source"]
                | {
                    "security_protocol": "SASL_SSL",
                    "sasl_mechanism": "PLAIN",
                    "sasl_username": "me",
                    "consumer_options": {"max.partition.fetch.bytes": 2_000_000},
                }
            ),
        }
    ),
    "secrets": {"source.sasl_password": {"name": "reo-source", "key": "password"}},
    "resources": {"replicator": {"limits": {"memory": "3Gi"}}},
    "podAnnotations": {"team": "data"},
    "podDisruptionBudget": {"enabled": True},
    "networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 9093}]}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboard": {"enabled": True},
    "prometheusRule": {"enabled": True, "documentation": "https://wiki.example.com/reo"},
}
Things = dict[tuple[str, str], dict[str, Any]]


def run(helm: str, *words: str, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """A command of helm's with these values."""
    return subprocess.run(
        [helm, *words, "-f", "-"],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
    )


def render_chart(
    helm: str, package: Path, values: Mapping[str, Any], release: str = "orders"
) -> Things:
    """The objects, by kind and name."""
    done = run(helm, "template", release, str(package), values=values)
    assert done.returncode == 0, done.stderr
    return {
        (thing["kind"], thing["metadata"]["name"]): thing
        for thing in yaml.safe_load_all(done.stdout)
        if thing
    }


def pods(things: Things) -> list[dict[str, Any]]:
    """The templates of pods."""
    return [
        thing["spec"]["template"]
        for (kind, _), thing in things.items()
        if kind in ("Deployment", "StatefulSet")
    ]
