"""Source candidates without clusters: which one is selected, which one is lost, and whether two
tails of a partition are equal.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import runtime, source_candidates
from common.errors import SettingsInvalid, SourceRecreated, SourceRefused, SourceTruncated
from common.frontier import Frontier, LastRecord, RuleState
from common.kafka.topics import Topic
from common.routes import Place
from common.settings import load
from common.source_candidates import SourceSnapshot
from reo.config import list_settings
from replicator import source
from replicator.candidates.candidate_health import Health, evaluate
from replicator.candidates.source_checks import Behind, check_offsets, inspect_single_source
from replicator.candidates.source_selection import SourceSelection, first_within_threshold
from replicator.candidates.tail_comparison import TailRecord, compare_tail

PLACE = Place("t", 0)
GOOD = {
    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1,b:1; c:1",
    "REO_SOURCE_TOPIC": "orders",
    "REO_DESTINATION_BOOTSTRAP_SERVERS": "d:1",
    "REO_SOURCE_MODE": "failover",
}


@pytest.mark.parametrize(
    ("watermarks", "order", "expected"),
    [
        ({0: 100, 1: 100}, [0, 1, 2], 0),
        ({0: 90, 1: 100}, [0, 1, 2], 0),
        ({0: 89, 1: 100}, [0, 1, 2], 1),
        ({1: 89, 2: 100}, [0, 1, 2], 2),
        ({0: 100, 2: 100}, [1, 2, 0], 2),
        ({}, [0, 1, 2], None),
    ],
)
def test_the_first_that_does_not_lag_is_taken(
    watermarks: dict[int, int], order: list[int], expected: int | None
) -> None:
    """In order, and never one that is further behind than the threshold, of 10 here; only the
    current one is preferred to others.
    """
    assert first_within_threshold(order, watermarks, 10) == expected


@given(
    st.dictionaries(st.integers(0, 5), st.integers(0, 50), min_size=1),
    st.permutations(range(6)),
    st.integers(0, 20),
)
def test_there_always_is_one_that_does_not_lag(
    watermarks: dict[int, int], order: list[int], threshold: int
) -> None:
    """The furthest is behind nobody: with candidates there is a choice, and it is near the
    furthest.
    """
    chosen = first_within_threshold(order, watermarks, threshold)
    assert chosen is not None
    assert max(watermarks.values()) - watermarks[chosen] <= threshold


@pytest.mark.parametrize(
    ("watermarks", "expected"),
    [
        ({0: 100, 1: 100}, None),
        ({0: 100, 1: 110}, None),
        ({0: 100, 1: 111}, "lagging"),
        ({0: 111, 1: 100}, None),
        ({0: 100, 1: None}, None),
        ({0: None, 1: 100}, "lost"),
        ({0: None, 1: None}, None),
        ({0: None}, None),
    ],
)
def test_a_run_is_ended_only_when_another_candidate_answers(
    watermarks: dict[int, int | None], expected: str | None
) -> None:
    """Where nobody answers the run goes on and waits, as with one cluster."""
    assert evaluate(watermarks, 0, 10) == expected


def test_the_first_candidate_is_chosen_by_chance_when_that_is_asked_for() -> None:
    """Any of them can be the first with `source.randomize_initial`; without it, it always is the
    first that is named.
    """

    def firsts(wanted: str) -> set[int]:
        settings = load(
            GOOD
            | {
                "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1;c:1",
                "REO_SOURCE_RANDOMIZE_INITIAL": wanted,
            }
        )
        return {
            SourceSelection(settings, random.Random(seed), lambda: None).initial
            for seed in range(30)
        }

    assert firsts("true") == {0, 1, 2}
    assert firsts("false") == {0}


def test_a_process_that_is_started_again_knows_the_candidate_and_counts_on(tmp_path: Path) -> None:
    """`source.max_failovers` is the service's: a restart of stage one between two changes does not
    allow one more. Without a memory nothing is known.
    """
    settings = load(
        GOOD | {"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1;c:1", "REO_SOURCE_MAX_FAILOVERS": "1"}
    )

    def begun(memory: Path | None = tmp_path / "source") -> SourceSelection:
        return SourceSelection(settings, random.Random(1), lambda: None, memory)

    first = begun()
    first._switch_to(0)
    first._switch_to(1)
    again = begun()
    assert (again.current, again.failovers) == (1, 1)
    again._switch_to(1)
    with pytest.raises(SourceRefused, match=r"source\.max_failovers=1 does not allow"):
        again._switch_to(2)
    assert (begun(None).current, begun(None).failovers) == (None, 0)


@pytest.mark.parametrize("made_again", [True, False])
def test_a_source_that_is_made_again_between_two_questions_is_called_that(
    monkeypatch: pytest.MonkeyPatch, made_again: bool
) -> None:
    """Described before, asked for its offsets after: it ends before what was copied, and it is
    another topic. One that is still the same has lost records.
    """
    settings = load(GOOD | {"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1", "REO_SOURCE_MODE": "single"})
    route, before = settings.routes()[0], Topic("orders", "one", 1, "cluster")
    sources = {route: replace(before, topic_id="two") if made_again else before}
    place = route.source(0)
    monkeypatch.setattr(
        source_candidates,
        "take_snapshot",
        lambda _, known=None: SourceSnapshot(
            settings, known or sources, {place: 0}, {place: 3}, {place: 3}
        ),
    )
    frontiers = {
        Place(route.intermediate_topic, 0): Frontier(
            RuleState(9, 1, None), before.identity, 1, "", -1, 0
        )
    }
    with pytest.raises(SourceRecreated if made_again else SourceTruncated):
        inspect_single_source(settings, {route: before}, frontiers)


@pytest.mark.parametrize(("stable_end", "is_behind"), [(9, True), (10, False)])
def test_a_candidate_whose_transaction_is_open_below_what_was_copied_is_behind(
    stable_end: int, is_behind: bool
) -> None:
    """Another one had its end already: this one is waited for, and not refused as if it had lost
    records.
    """
    settings = load(GOOD)
    route, topic = settings.routes()[0], Topic("orders", "one", 1, "cluster")
    place = route.source(0)
    snapshot = SourceSnapshot(
        settings, {route: topic}, {place: 0}, {place: 20}, {place: stable_end}
    )
    frontiers = {
        Place(route.intermediate_topic, 0): Frontier(
            RuleState(9, 1, None), topic.identity, 1, "", -1, 0, LastRecord(9, "checksum")
        )
    }
    with (
        pytest.raises(Behind, match="open transaction there at offset 9")
        if is_behind
        else contextlib.nullcontext()
    ):
        check_offsets(snapshot, frontiers)


def test_lag_ends_a_run_at_most_once_in_the_longest_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates that overtake one another do not end run after run; one that is lost is another
    matter. What was refused is no measure.
    """
    settings = load(GOOD | {"REO_SOURCE_BACKOFF_MIN_MS": "100", "REO_SOURCE_BACKOFF_MAX_MS": "300"})
    now_s = 100.0
    monkeypatch.setattr(runtime, "monotonic", lambda: now_s)
    selection = SourceSelection(settings, random.Random(1), lambda: None)
    selection.current = 0
    health = Health(settings, selection)
    assert health.evaluate_round({0: 0, 1: 5000}) == "lagging"
    assert health.evaluate_round({0: 0, 1: 5000}) is None
    assert health.evaluate_round({0: None, 1: 5000}) == "lost"
    now_s += 0.4
    assert health.evaluate_round({0: 0, 1: 5000}) == "lagging"
    selection.refused = {1}
    now_s += 0.4
    assert health.evaluate_round({0: 0, 1: 5000}) is None
    assert health.evaluate_round({0: None, 1: 5000}) is None


def placed(*offsets: int) -> list[TailRecord]:
    """Records whose content is their offset."""
    return [TailRecord(offset, (b"%d" % offset, b"", [], offset)) for offset in offsets]


def moved(records: list[TailRecord], by: int) -> list[TailRecord]:
    """The same records at other offsets."""
    return [TailRecord(record.offset + by, record.content) for record in records]


def test_two_ends_are_walked_backwards_as_far_as_both_go() -> None:
    """Offsets at the destination are others, the stretches may be of different length, and gaps are
    legal on either side.
    """
    assert compare_tail(PLACE, moved(placed(3, 5, 6, 9), 100), placed(5, 6, 9), 9) == 3
    assert compare_tail(PLACE, placed(9), placed(3, 5, 6, 9), 9) == 1


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ([], "no record at offset 9"),
        (placed(3, 5, 6), "no record at offset 9"),
        (placed(5, 6, 9, 10), "no record at offset 9"),
        (moved(placed(3, 5, 6, 9), -1), "no record at offset 9"),
        (placed(3, 5, 7, 9), "at offset 7 is not the one that was copied"),
        (placed(4, 5, 6, 9), "at offset 4 is not the one that was copied"),
        (placed(3, 6, 9), "at offset 3 is not the one that was copied"),
        (
            [*placed(3, 5, 6), TailRecord(9, (b"9", b"", [("h", b"")], 9))],
            "at offset 9 is not the one that was copied",
        ),
        (
            [*placed(3, 5, 6), TailRecord(9, (b"9", b"", [], 8))],
            "at offset 9 is not the one that was copied",
        ),
    ],
)
def test_a_difference_is_refused(there: list[TailRecord], why: str) -> None:
    """Another record, a missing one, the right ones at other offsets, other headers, another
    timestamp.
    """
    with pytest.raises(SourceRefused, match=why):
        compare_tail(PLACE, placed(3, 5, 6, 9), there, 9)


def test_candidates_are_separated_by_semicolons() -> None:
    """Commas are between the brokers of one; each candidate by itself has the other settings of the
    source.
    """
    settings = load(GOOD)
    assert [cluster.bootstrap_servers for cluster in settings.sources] == ["a:1,b:1", "c:1"]
    assert settings.source_cluster is settings.sources[0]
    other = settings.on(settings.sources[1])
    assert [cluster.bootstrap_servers for cluster in other.sources] == ["c:1"]
    assert other.values == settings.values | {"source.bootstrap_servers": "c:1"}
    assert load(settings.as_environment()).values == settings.values


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"REO_SOURCE_MODE": "single"}, "names 2 clusters, and REO_SOURCE_MODE is single"),
        ({"REO_SOURCE_MODE": "both"}, "one of single, failover is expected"),
        ({"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;;b:1"}, "is empty or named twice"),
        ({"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1;a:1"}, "is empty or named twice"),
        ({"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;"}, "is empty or named twice"),
        (
            {"REO_SOURCE_TOPIC": "", "REO_TOPICS": "^orders-.*", "REO_APPLICATION": "a"},
            "REO_SOURCE_MODE=failover and a pattern: a topic that one",
        ),
        ({"REO_DEDUPLICATOR_WITHOUT_FRONTIER": "append"}, "have to be the only ones"),
        (
            {"REO_SOURCE_BACKOFF_MIN_MS": "20000"},
            "REO_SOURCE_BACKOFF_MIN_MS is more than REO_SOURCE_BACKOFF_MAX_MS",
        ),
    ],
)
def test_candidates_that_make_no_sense_are_refused(changes: dict[str, str], part: str) -> None:
    """Before any client is made."""
    with pytest.raises(SettingsInvalid) as wrong:
        load(GOOD | changes)
    assert part in str(wrong.value)


OWN = {
    "REO_SOURCE_MODE": "failover",
    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1;c:1",
    "REO_SOURCE_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "REO_SOURCE_SASL_MECHANISM": "PLAIN",
    "REO_SOURCE_SASL_USERNAME": "common",
    "REO_SOURCE_SASL_PASSWORD": "s3cr3t-common",
    "REO_SOURCE_CONSUMER_OPTIONS_CLIENT_RACK": "a",
    "REO_SOURCE_2_SASL_MECHANISM": "SCRAM-SHA-512",
    "REO_SOURCE_2_SASL_PASSWORD": "s3cr3t-second",
    "REO_SOURCE_2_CONSUMER_OPTIONS_CLIENT_RACK": "b",
    "REO_SOURCE_2_CONSUMER_OPTIONS_FETCH_MAX_BYTES": "7",
    "REO_SOURCE_3_SECURITY_PROTOCOL": "PLAINTEXT",
}


def test_a_candidate_has_settings_of_its_own() -> None:
    """Its own, or else what all have, as far as its protocol uses it; also when it is the only
    source of the settings, and in a child process.
    """
    for loaded in (load(GOOD | OWN), load(load(GOOD | OWN).as_environment())):
        first, second, third = loaded.sources
        assert first.security.librdkafka() == {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "common",
            "sasl.password": "s3cr3t-common",
        }
        assert second.security.librdkafka() == {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "common",
            "sasl.password": "s3cr3t-second",
        }
        assert third.security.librdkafka() == {"security.protocol": "PLAINTEXT"}
        for cluster, options in (
            (first, {"client.rack": "a"}),
            (second, {"client.rack": "b", "fetch.max.bytes": "7"}),
            (third, {"client.rack": "a"}),
        ):
            alone = loaded.on(cluster)
            assert (alone.source.bootstrap_servers, alone.source.security) == (
                cluster.bootstrap_servers,
                cluster.security,
            )
            assert alone.source.consumer_options == options
            assert load(alone.as_environment()).source.security == cluster.security
            java = source.options(alone, {PLACE: 0})
            assert java["kafka.client.rack"] == options["client.rack"]
            assert ("s3cr3t-second" in java.get("kafka.sasl.jaas.config", "")) == (
                cluster is second
            )


@pytest.mark.parametrize("form", ["toml", "yaml", "ini"])
def test_a_candidates_settings_in_a_file(tmp_path: Path, form: str) -> None:
    """As a table with its number; a secret may be a file, and none is shown."""
    text = {
        "toml": (
            '[source.2]\nsecurity_protocol = "SSL"\nssl_ca_file ='
            ' "CA"\n[source.2.consumer_options]\nclient.rack = "b"\n'
        ),
        "yaml": (
            "source:\n  2:\n    security_protocol: SSL\n    ssl_ca_file: CA\n   "
            " consumer_options:\n      client.rack: b\n"
        ),
        "ini": (
            "[source.2]\nsecurity_protocol = SSL\nssl_ca_file ="
            " CA\n[source.2.consumer_options]\nclient.rack = b\n"
        ),
    }[form]
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    (tmp_path / f"reo.{form}").write_text(text.replace("CA", str(tmp_path / "ca.pem")))
    both = GOOD | {"REO_SOURCE_MODE": "failover", "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;b:1"}
    loaded = load(both, str(tmp_path / f"reo.{form}"))
    assert [cluster.security.security_protocol for cluster in loaded.sources] == [
        "PLAINTEXT",
        "SSL",
    ]
    assert loaded.on(loaded.sources[1]).source.consumer_options == {"client.rack": "b"}
    (tmp_path / "secret").write_text("s3cr3t")
    secret = {
        "REO_SOURCE_2_SECURITY_PROTOCOL": "SASL_SSL",
        "REO_SOURCE_2_SASL_MECHANISM": "PLAIN",
        "REO_SOURCE_2_SASL_USERNAME": "u",
        "REO_SOURCE_2_SASL_PASSWORD_FILE": str(tmp_path / "secret"),
    }
    loaded = load(both | secret, str(tmp_path / f"reo.{form}"))
    assert loaded.sources[1].security.sasl_password == "s3cr3t"
    assert "s3cr3t" not in repr(list(list_settings(loaded)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"REO_SOURCE_2_SASL_MECHANISM": "OAUTHBEARER"},
            "REO_SOURCE_2_SASL_OAUTH_TOKEN_URL belongs to REO_SOURCE_2_SASL_MECHANISM=OAUTHBEARER",
        ),
        (
            {"REO_SOURCE_3_SASL_USERNAME": "u"},
            (
                "REO_SOURCE_3_SASL_USERNAME would not be used: REO_SOURCE_3_SECURITY_PROTOCOL is"
                " PLAINTEXT"
            ),
        ),
        (
            {"REO_SOURCE_4_SASL_USERNAME": "u"},
            (
                "REO_SOURCE_4_SASL_USERNAME would not be used: REO_SOURCE_BOOTSTRAP_SERVERS names 3"
                " clusters"
            ),
        ),
        (
            {"REO_SOURCE_2_SASL_USERNAM": "u"},
            "REO_SOURCE_2_SASL_USERNAM: unknown setting (did you mean REO_SOURCE_2_SASL_USERNAME?)",
        ),
        ({"REO_SOURCE_2_SECURITY_PROTOCOL": "TLS"}, "REO_SOURCE_2_SECURITY_PROTOCOL: one of"),
        (
            {"REO_SOURCE_2_CONSUMER_OPTIONS_ISOLATION_LEVEL": "read_uncommitted"},
            "REO_SOURCE_2_CONSUMER_OPTIONS_ISOLATION_LEVEL is not passed through",
        ),
        (
            {"REO_SOURCE_MODE": "single", "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1"},
            "REO_SOURCE_2_SASL_MECHANISM would not be used: REO_SOURCE_MODE is single",
        ),
    ],
)
def test_wrong_settings_of_a_candidate_are_named(changes: dict[str, str], words: str) -> None:
    """By its number, and as the user spells them."""
    with pytest.raises(SettingsInvalid) as wrong:
        load(GOOD | OWN | changes)
    assert words in str(wrong.value)
    assert "s3cr3t" not in str(wrong.value)
