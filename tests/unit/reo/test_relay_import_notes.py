"""What `reo config import` cannot express is named: each key of kaf-relay's becomes a setting or a
note, none is dropped unsaid.
"""

from __future__ import annotations

from typing import Any

import pytest

from reo.importers.kaf_relay import import_settings
from tests.unit.reo.test_relay_import import tree

KeyPath = tuple[str | int, ...]


def keys(content: Any, path: KeyPath = ()) -> set[KeyPath]:
    """The path of every key with a value."""
    if isinstance(content, dict):
        return {found for key, value in content.items() for found in keys(value, (*path, key))}
    if isinstance(content, list) and content and isinstance(content[0], dict):
        return {
            found for number, value in enumerate(content) for found in keys(value, (*path, number))
        }
    return {path} if content not in ("", []) else set()


def prune_key(content: Any, path: KeyPath) -> Any:
    """The tree without one key."""
    place, *rest = path
    if isinstance(content, list):
        return [
            prune_key(value, tuple(rest)) if number == place else value
            for number, value in enumerate(content)
        ]
    if not rest:
        return {key: value for key, value in content.items() if key != place}
    return {
        key: prune_key(value, tuple(rest)) if key == place else value
        for key, value in content.items()
    }


def test_no_key_is_dropped_unsaid() -> None:
    """Take any key away: a setting or a note changes. Listed are those that say what is so anyhow,
    and the inside of what is named as a whole.
    """
    same_without: set[KeyPath] = {
        ("sources", 0, "enable_tls"),
        ("sources", 0, "enable_log"),
        ("source_pool", "max_retries"),
        ("source_pool", "backoff_enable"),
        ("filters", "test", "path"),
        ("filters", "test", "config"),
    }
    inside = {path for path in keys(tree()) if path[:2] == ("sources", 1)}
    for mode, ignored in (("single", same_without | inside), ("failover", same_without)):
        whole = import_settings(tree(), mode=mode)
        for path in keys(tree()) - ignored:
            without = import_settings(prune_key(tree(), path), mode=mode)
            assert (without.values, without.topics, without.notes) != (
                whole.values,
                whole.topics,
                whole.notes,
            ), (mode, path)


@pytest.mark.parametrize(
    ("change", "key", "why"),
    [
        ("[app]\nlog_levle = 1", "app.log_levle", "unknown key of kaf-relay"),
        ("[extra]\na = 1", "extra.a", "unknown key of kaf-relay"),
        ("app = 5", "app", "unknown key of kaf-relay"),
        ("sources = 5", "sources", "unknown key of kaf-relay"),
        ('[topics]\norders = "copy:x"', "topics.orders", "destination:partition is expected"),
        (
            '[source_pool]\ninitial_offset = "middle"',
            "source_pool.initial_offset",
            "no counterpart",
        ),
        ("[source_pool]\ninitial_offset = [1]", "source_pool.initial_offset", "no counterpart"),
        ('[app]\nlog_level = "loud"', "app.log_level", "no counterpart"),
        ('[app]\nmetrics_server_addr = "7081"', "app.metrics_server_addr", "host:port or :port"),
        ("[source_pool]\nmax_retries = 3", "source_pool.max_retries", "without limit"),
        ("[target]\nenable_idempotency = false", "target.enable_idempotency", "always"),
        ('[target]\ncommit_ack_type = "tcp"', "target.commit_ack_type", "acks=all"),
        ('[target]\nusername = "a"', "target.username", "enable_auth is not set"),
        ('[target]\nflush_frequency = "soon"', "target.flush_frequency", "no counterpart"),
        ("[filters.a]\nenabled = false", "filters.a", "is not enabled"),
        ("[filters.a]\nenabled = true", "filters.a", "a plug-in in Go cannot be loaded"),
        (
            "[source_pool]\nrequest_timeout = '10ms'\n[[sources]]\n[[sources]]",
            "source_pool.request_timeout",
            "no counterpart in source.request_timeout_ms",
        ),
        ("[[sources]]\n" * 10, "sources[9]", "at most 9 candidates"),
        (
            '[target]\nenable_auth = true\nsasl_mechanism = "GSSAPI"',
            "target.sasl_mechanism",
            "no counterpart",
        ),
        (
            '[target]\nenable_auth = true\npassword = "a"',
            "target.password",
            "REO_DESTINATION_SASL_PASSWORD_FILE",
        ),
    ],
)
def test_what_can_not_be_expressed_is_named(change: str, key: str, why: str) -> None:
    """The key, and the reason or what to do."""
    found = dict(import_settings(tree(change)).notes)
    assert why in found[key]
