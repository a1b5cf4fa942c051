"""The Helm chart's files that follow from the code: the schema of its values, from the table of
settings, and its version.

Secrets are not among the settings of the schema: they are refused as values, and taken by the name
of a Secret. So are settings that the chart itself has.
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from common.settings.declaration import Setting
from common.settings.schema import SETTINGS
from reo.version import VERSION

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "helm" / "reo"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
URLS: dict[str, str] = PROJECT.get("urls", {})
"""Where reo is published."""
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
NOT_VALUES = frozenset({"instance", "metrics.port", "metrics.address", "stop_at_end"})
"""Settings that the chart gives by itself, or that make no service."""
KUBERNETES_MIN = "1.29"
"""The oldest version whose schemas the tests validate the objects by."""
PLACE = (
    *("podLabels", "podAnnotations", "podSecurityContext", "securityContext", "nodeSelector"),
    *("tolerations", "affinity", "topologySpreadConstraints", "priorityClassName"),
)
"""Values of pods that executor pods have too."""
OBJECT = {"type": "object"}
LIST = {"type": "array", "items": OBJECT}
REFERENCE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "key"],
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "key": {"type": "string", "minLength": 1},
    },
}


def list_files() -> Mapping[Path, Callable[[], str]]:
    """What each file has to contain."""
    return {
        FOLDER / "values.schema.json": write_schema,
        FOLDER / "Chart.yaml": write_chart,
        RULES: write_rules,
    }


def write_schema() -> str:
    """The JSON Schema of `values.yaml`, by which Helm refuses a mistyped value."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart reo",
        **_build_object_schema(_list_value_schemas()),
    }
    return json.dumps(schema, indent=1) + "\n"


def _list_value_schemas() -> dict[str, Any]:
    """The schema of each value on the top level of `values.yaml`."""
    flag, text = {"type": "boolean"}, {"type": "string"}
    labels = {"type": "object", "additionalProperties": text}
    number = {"type": "integer", "minimum": 0}
    name = {"type": "string", "pattern": "^(reo[a-z0-9-]*)?$", "maxLength": 39}
    optional = {"enabled": flag, "labels": labels}
    resources = dict.fromkeys(("reo", "replicator", "deduplicator"), OBJECT)
    pod = _list_pod_schemas()
    return pod | {
        "global": OBJECT,
        "nameOverride": name,
        "fullnameOverride": name,
        "commonLabels": labels,
        "serviceAccount": _build_object_schema(
            {"create": flag, "name": text, "annotations": labels}
        ),
        "service": _build_object_schema({"annotations": labels}),
        "image": _build_object_schema(
            {
                "repository": text,
                "tag": text,
                "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
            }
        ),
        "imagePullSecrets": LIST,
        "stages": {"enum": ["together", "apart"]},
        "replicator": _build_object_schema(pod),
        "deduplicator": _build_object_schema(pod | {"replicas": number, "updateStrategy": OBJECT}),
        "settings": build_settings_schema(),
        "secrets": _build_object_schema(
            {setting.name: REFERENCE for setting in SETTINGS if setting.kind == "secret"}
        ),
        "env": LIST,
        "volumes": LIST,
        "volumeMounts": LIST,
        "resources": _build_object_schema(resources),
        "executors": _build_object_schema({"enabled": flag} | {key: pod[key] for key in PLACE}),
        "autoscaling": _build_object_schema(
            {
                "enabled": flag,
                "minReplicas": number | {"minimum": 1},
                "maxReplicas": number | {"minimum": 1},
                "lagSeconds": number | {"minimum": 1},
                "prometheus": {"type": "string", "pattern": "^https?://"},
            }
        ),
        "podDisruptionBudget": _build_object_schema({"enabled": flag}),
        "networkPolicy": _build_object_schema({"enabled": flag, "from": LIST, "egress": LIST}),
        "serviceMonitor": _build_object_schema(optional),
        "dashboard": _build_object_schema(optional),
        "prometheusRule": _build_object_schema(
            optional
            | {
                "documentation": {"type": "string", "pattern": "^(https?://.*[^/])?$"},
                "severities": _build_object_schema({"page": text, "ticket": text}),
            }
        ),
    }


def _list_pod_schemas() -> dict[str, Any]:
    """The schema of each value that is of all pods, or of one stage's."""
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    tables = "podSecurityContext securityContext startupProbe livenessProbe readinessProbe affinity"
    return dict.fromkeys(tables.split(), OBJECT) | {
        "annotations": labels,
        "podAnnotations": labels,
        "podLabels": labels,
        "nodeSelector": labels,
        "terminationGracePeriodSeconds": {"type": "integer", "minimum": 0},
        "tolerations": LIST,
        "topologySpreadConstraints": LIST,
        "priorityClassName": {"type": "string"},
    }


def build_settings_schema() -> dict[str, Any]:
    """The settings as a settings file has them: `section: {key: value}`. What is required is asked
    for by a template, so that `helm lint` does without values.
    """
    top: dict[str, Any] = {}
    for setting in SETTINGS:
        if setting.kind == "secret" or setting.name in NOT_VALUES:
            continue
        section, _, key = setting.name.rpartition(".")
        place = (
            top.setdefault(section, _build_object_schema({})) if section else {"properties": top}
        )
        place["properties"][key] = _build_value_schema(setting)
        if setting.name == "topics":  # a text, a list, or a section with topics as keys
            top["topics"] = _build_value_schema(setting) | {
                "properties": {},
                "type": ["string", "array", "object"],
                "items": {"type": "string"},
                "additionalProperties": {"type": "string"},
            }
    return _build_object_schema(top)


def write_chart() -> str:
    """`Chart.yaml`: the chart has the version of the reo that it starts, and says the same of it as
    the package. The icon is in it: where it would be served is not known, and need not be.
    """
    icon = base64.b64encode((ROOT / "docs" / "pictures" / "icon.svg").read_bytes()).decode()
    chart = {
        "apiVersion": "v2",
        "name": "reo",
        "description": PROJECT["description"],
        "type": "application",
        "version": VERSION,
        "appVersion": VERSION,
        "kubeVersion": f">={KUBERNETES_MIN}.0-0",
        "home": URLS.get("Documentation"),
        "sources": [URLS["Source"]] if "Source" in URLS else None,
        "icon": f"data:image/svg+xml;base64,{icon}",
        "keywords": PROJECT["keywords"],
        "annotations": {
            "artifacthub.io/category": "streaming-messaging",
            "artifacthub.io/license": PROJECT["license"],
        },
    }
    lines = [f"{key}: {json.dumps(value)}\n" for key, value in chart.items() if value]
    return "# Written by `make reference`.\n" + "".join(lines)


def write_rules() -> str:
    """The alert rules, each with the chapter on what to do: as a link, if `Documentation` of
    `project.urls` says where it leads, or as the place in a checkout.
    """
    served = URLS.get("Documentation")
    runbook = f"runbook_url: {served}" if served else "runbook: docs"
    return re.sub(r"runbook(_url)?: .*(?=/how-to/)", runbook, RULES.read_text())


def _build_object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _build_value_schema(setting: Setting) -> dict[str, Any]:
    described = {"description": re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", setting.meaning)}
    if setting.kind == "options":
        return described | {"type": "object"}
    if setting.kind == "flag":
        return described | {"type": "boolean"}
    if setting.kind == "integer":
        return described | {
            "type": "integer",
            "minimum": setting.minimum,
            "maximum": setting.maximum,
        }
    if setting.choices:
        return described | {"enum": list(setting.choices)}
    return (
        described
        | {"type": ["string", "integer"] if setting.kind == "start" else "string"}
        | ({"minLength": 1} if setting.required else {})
    )
