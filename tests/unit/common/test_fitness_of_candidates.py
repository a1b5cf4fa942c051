"""What one source candidate lacks, another one may have (`common.source_pool`)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from common import clock, source_pool
from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    Cycle,
    ReoError,
    TopicMissing,
    TopicsUnfit,
)
from common.routes import TopicPartition
from common.settings import Settings, load
from common.source_pool import SourceSnapshot
from tests.unit.replicator.test_candidates import GOOD

TP = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ([TopicMissing("orders"), ClusterUnreachable("silent")], ClusterUnreachable),
        ([TopicMissing("orders"), AccessRefused("orders")], TopicMissing),
    ],
)
def test_a_silent_candidate_may_have_what_another_one_lacks(
    monkeypatch: pytest.MonkeyPatch, errors: list[ReoError], raised: type[ReoError]
) -> None:
    """That one is waited for; what the others say is final only when all of them have said it."""
    now_s = iter(range(0, 10_000, 100))
    monkeypatch.setattr(clock, "monotonic", lambda: next(now_s))
    monkeypatch.setattr(source_pool, "take_snapshots", lambda _: errors)
    with pytest.raises(raised):
        source_pool.select_answering(load(GOOD))


@pytest.mark.parametrize(
    ("answering", "failures", "dead", "expected", "asked"),
    [
        pytest.param("ab", {}, "", "b", "b", id="the furthest"),
        pytest.param("ab", {"b": TopicsUnfit("b")}, "", "a", "ba", id="another one is fit"),
        pytest.param("ab", {"b": ClusterUnreachable("b")}, "b", "a", "ba", id="it died meanwhile"),
        pytest.param(
            "ab", {"b": ClusterUnreachable("b")}, "", ClusterUnreachable, "b", id="the destination"
        ),
        pytest.param(
            "ab",
            {"a": AccessRefused("a"), "b": TopicsUnfit("b")},
            "",
            TopicsUnfit,
            "ba",
            id="none is fit",
        ),
        pytest.param("ab", {"b": Cycle("b")}, "", Cycle, "b", id="it is the destination itself"),
        pytest.param(
            "b",
            {"b": TopicsUnfit("b")},
            "",
            ClusterUnreachable,
            "b",
            id="the silent one may be fit",
        ),
    ],
)
def test_what_one_candidate_lacks_another_one_may_have(
    monkeypatch: pytest.MonkeyPatch,
    answering: str,
    failures: dict[str, ReoError],
    dead: str,
    expected: str | type[ReoError],
    asked: str,
) -> None:
    """All that answer are tried, the furthest first; a silent one is waited for."""
    settings = load(GOOD | {"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1"})
    sources = {"a": settings.sources[0], "b": settings.sources[1]}
    snapshots: dict[str, Any] = {
        name: SourceSnapshot(settings.select_source(source), {}, {}, {TP: 0}, {TP: ord(name)})
        if name in answering
        else ClusterUnreachable(name)
        for name, source in sources.items()
    }
    tried = []

    def prepare(candidate: Settings) -> Any:
        name = candidate.source_cluster.bootstrap_servers[0]
        tried.append(name)
        if name in failures:
            raise failures[name]
        return name

    monkeypatch.setattr(source_pool, "take_snapshots", lambda _: list(snapshots.values()))
    monkeypatch.setattr(
        source_pool,
        "take_snapshot",
        lambda candidate: failures["b"] if dead else snapshots["b"],
    )
    if isinstance(expected, str):
        assert source_pool.try_sources(settings, prepare) == cast(Any, expected)
    else:
        with pytest.raises(expected):
            source_pool.try_sources(settings, prepare)
    assert "".join(tried) == asked
