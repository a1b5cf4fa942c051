"""A real helm, the values that the tests of the chart give it, and the objects that it renders."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from reo.version import VERSION
from tests.harness.kafka import ROOT
from tools.reference.chart import KUBERNETES_MIN

HELM = shutil.which("helm", path=f"{ROOT / 'build' / '.bin'}") or shutil.which("helm") or ""
NEEDS_HELM = [
    pytest.mark.long,
    pytest.mark.skipif(
        not HELM, reason="there is no helm: `make helm` builds it where Go is installed"
    ),
]
"""What the tests of the chart are marked with."""
CHART = ROOT / "deploy" / "helm" / "reo"
LEAST, ALL = (
    yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text()) for name in ("least", "all")
)
CLUSTERS = LEAST["settings"]
ALL_NAME = "reo-copy-orders"
"""What `nameOverride` and the release make of the objects' names."""
Things = dict[tuple[str, str], dict[str, Any]]


def package_chart(helm: str, folder: Path) -> Path:
    """The chart as it is released: one file that does without this repository."""
    subprocess.run(
        [helm, "package", str(CHART), "-d", str(folder)], capture_output=True, check=True
    )
    return folder / f"reo-{VERSION}.tgz"


def run(helm: str, *words: str, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """A command of helm's with these values, for the oldest Kubernetes that the chart takes."""
    return subprocess.run(
        [helm, *words, "--kube-version", KUBERNETES_MIN, "-f", "-"],
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


def get_pod(things: Things, component: str) -> dict[str, Any]:
    """The pod's specification of one kind of pods."""
    (pod,) = [
        pod
        for pod in pods(things)
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] == component
    ]
    spec: dict[str, Any] = pod["spec"]
    return spec
