"""OpenTelemetry's resource attributes, as its specification writes them into the environment."""

from __future__ import annotations

import pytest

from common import otel_resource, settings


@pytest.mark.parametrize(
    ("environment", "attributes"),
    [
        ({}, {}),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "service.name=a, k8s.pod.name = p%2C%C3%BC%3D ,empty=,"},
            {"service.name": "a", "k8s.pod.name": "p,ü=", "empty": ""},
        ),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "service.name=a,x=1=2", "OTEL_SERVICE_NAME": "b"},
            {"service.name": "b", "x": "1=2"},
        ),
        (  # bytes that are no UTF-8, as Python has them
            {"OTEL_RESOURCE_ATTRIBUTES": "x=\udcff", "OTEL_SERVICE_NAME": "\udcff"},
            {"service.name": r"\udcff", "x": r"\udcff"},
        ),
    ],
)
def test_attributes_are_read(environment: dict[str, str], attributes: dict[str, str]) -> None:
    """Percent-encoding is undone; the service's own variable wins."""
    assert otel_resource.read_attributes(environment) == attributes
    assert not otel_resource.find_error(environment)


@pytest.mark.parametrize("text", ["a=1,b", "=1", "a=%zz", "a=%ff"])
def test_what_cannot_be_read_counts_as_not_set(text: str) -> None:
    """The whole variable, as the specification says; the error names it."""
    environment = {"OTEL_RESOURCE_ATTRIBUTES": text, "OTEL_SERVICE_NAME": "orders"}
    assert otel_resource.read_attributes(environment) == {"service.name": "orders"}
    error = otel_resource.find_error(environment)
    assert error.startswith("OTEL_RESOURCE_ATTRIBUTES has no effect: ")
    needed = {"SOURCE_BOOTSTRAP_SERVERS": "a:1", "DESTINATION_BOOTSTRAP_SERVERS": "b:1"}
    named = {f"REO_{name}": value for name, value in {**needed, "SOURCE_TOPIC": "t"}.items()}
    assert settings.load(environment | named).list_warnings() == [error], "each start says it"


def test_labels_have_the_names_that_prometheus_takes() -> None:
    """Two attributes whose names become the same share a label."""
    attributes = {"service.name": "orders", "9lives": "x", "a.b": "1", "a-b": "2"}
    assert otel_resource.build_labels(attributes) == {
        "service_name": "orders",
        "key_9lives": "x",
        "a_b": "2;1",
    }
