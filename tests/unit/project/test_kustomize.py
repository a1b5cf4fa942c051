"""Kustomizations: each names what is there, the example's patch fits the base, and a real kustomize
makes valid objects of them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.unit.project.test_kubernetes import (
    DEPLOY,
    NOT_KUBERNETES,
    PODS,
    VERSIONS,
    documents,
    format_path,
    patch_workloads,
    validate_object,
    workload,
)


def kustomizations() -> list[Path]:
    """Every folder that kustomize is told of."""
    return sorted(path.parent for path in DEPLOY.rglob("kustomization.yaml"))


def list_references(folder: Path) -> Iterator[Path]:
    """All that a kustomization names."""
    (told,) = documents(folder / "kustomization.yaml")
    yield from (folder / name for name in (*told.get("resources", ()), *told.get("components", ())))
    yield from (folder / patch["path"] for patch in told.get("patches", ()))
    yield from (
        folder / name
        for generator in told.get("configMapGenerator", ())
        for name in generator["envs"]
    )


@pytest.mark.parametrize("folder", kustomizations(), ids=format_path)
def test_a_kustomization_names_what_is_there(folder: Path) -> None:
    """Nothing is named that there is not, and nothing is left out."""
    named_files = list(list_references(folder))
    assert [path for path in named_files if not path.exists()] == []
    assert {path for path in named_files if path.parent == folder} == {
        path for path in folder.iterdir() if path.name != "kustomization.yaml"
    }


@pytest.mark.parametrize("name", ["base", "example", "example-executors"])
def test_a_plain_cluster_takes_it(name: str) -> None:
    """What is applied has no kind that is not Kubernetes' own: an operator is needed only where its
    component is asked for.
    """
    seen, kinds = [DEPLOY / name], set()
    while seen:
        path = seen.pop()
        if path.is_dir():
            seen += list_references(path)
        elif path.suffix == ".yaml" and isinstance(documents(path)[0], dict):
            kinds |= {thing["kind"] for thing in documents(path)}
    assert "Deployment" in kinds
    assert kinds & NOT_KUBERNETES == set()


def test_the_example_changes_what_is_there() -> None:
    """Its patch fits both stages, and its image and its replicas are the base's."""
    (told,) = documents(DEPLOY / "example" / "kustomization.yaml")
    base = {thing["metadata"]["name"]: thing for thing in map(workload, PODS[1:])}
    for thing in patch_workloads():
        validate_object(thing, VERSIONS[-1])
    assert {entry["name"] for entry in told["replicas"]} <= set(base)
    images = {
        thing["spec"]["template"]["spec"]["containers"][0]["image"].split(":")[0]
        for thing in base.values()
    }
    assert {entry["name"] for entry in told["images"]} == images


def kustomize() -> list[str]:
    """The command that builds: kustomize, or the one in kubectl if it knows components and
    replacements; empty where there is none.
    """
    if shutil.which("kustomize"):
        return ["kustomize", "build"]
    if not shutil.which("kubectl"):
        return []
    said = subprocess.run(
        ["kubectl", "version", "--client"], capture_output=True, text=True, check=False
    ).stdout
    found = re.search(r"Kustomize Version: v(\d+)\.", said)
    return ["kubectl", "kustomize"] if found and int(found[1]) >= 5 else []


@pytest.mark.skipif(
    not kustomize(),
    reason=(
        "neither kustomize nor a kubectl with kustomize 5; without it what it names and changes is"
        " held above"
    ),
)
@pytest.mark.parametrize(
    "folder",
    [
        path
        for path in kustomizations()
        if documents(path / "kustomization.yaml")[0]["kind"] == "Kustomization"
    ],
    ids=format_path,
)
def test_kustomize_makes_valid_objects(folder: Path) -> None:
    """The real thing: every object that it makes is valid, the pods find their settings, and
    executors have the image of the pod that asks for them.
    """
    made = subprocess.run(
        [*kustomize(), str(folder)], capture_output=True, text=True, check=True
    ).stdout
    things = [thing for thing in yaml.safe_load_all(made) if thing]
    for thing in things:
        if thing["kind"] not in NOT_KUBERNETES:
            validate_object(thing, VERSIONS[-1])
    (settings,) = (thing["metadata"]["name"] for thing in things if thing["kind"] == "ConfigMap")
    pods = [
        thing["spec"]["template"]
        for thing in things
        if thing["kind"] in ("Deployment", "StatefulSet")
    ]
    assert {pod["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"] for pod in pods} == {
        settings
    }
    assert all(pod["metadata"]["labels"]["app.kubernetes.io/name"] == "reo" for pod in pods)
    accounts = {thing["metadata"]["name"] for thing in things if thing["kind"] == "ServiceAccount"}
    assert {
        pod["spec"]["serviceAccountName"]
        for pod in pods
        if pod["spec"]["automountServiceAccountToken"]
    } == accounts
    for container in (pod["spec"]["containers"][0] for pod in pods):
        images = {
            entry["value"]
            for entry in container["env"]
            if entry["name"].endswith("container_image")
        }
        assert images <= {container["image"]}
