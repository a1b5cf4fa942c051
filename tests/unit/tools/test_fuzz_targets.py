"""The fuzzer's invariants, checked with mutated real values, and that it would notice a wrong
parser. (What it has found is in `test_fuzz_findings`.)

`fuzz.targets` says what each invariant is. Here hypothesis chooses the inputs, always the same
ones; `make fuzz` searches on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from common import envelope, frontier
from common.envelope import HEAD, Head
from common.settings import conversion
from deduplicator import round_decisions, rule, unwrap
from deduplicator.rule import RuleState
from tools.fuzz import compiled_forward
from tools.fuzz.seeds import SEEDS, WORDS
from tools.fuzz.targets import TARGETS

EXAMPLES = {
    "envelope": 600,
    "records": 300,
    "metadata": 500,
    "environment": 60,
    "settings_file": 60,
}
NAMES = tuple(TARGETS)


TOKENS = re.compile(rb'"[^"]*"|[-\w.]+')


FIRST_ENVELOPE = {"envelope": 1, "records": 4}
"""Where it begins in a seed."""
FIELDS = (1, 2, 10, 18, 22, 30, 38, 46, 50, HEAD.size)
"""Where the fields of a head begin, and the first record."""


def replace_numbers(name: str) -> list[bytes]:
    """Every seed with each field of its first envelope beginning with each word."""
    begins = [FIRST_ENVELOPE[name] + begin for begin in FIELDS]
    return [
        seed[:begin] + word + seed[begin + len(word) :]
        for seed in SEEDS[name]
        for begin in begins
        for word in WORDS["envelope"]
    ]


def replace_words(name: str) -> list[bytes]:
    """Every seed with each token replaced by each word: most are well-formed still."""
    places = [(seed, token.span()) for seed in SEEDS[name] for token in TOKENS.finditer(seed)]
    return [
        seed[:begin] + word + seed[end:] for seed, (begin, end) in places for word in WORDS[name]
    ]


def damage_seeds(name: str) -> st.SearchStrategy[bytes]:
    """A seed with up to four changes: a word or noise put in or over something, something left
    out.
    """
    changes = st.lists(
        st.tuples(
            st.integers(0, 400),
            st.integers(0, 20),
            st.sampled_from(WORDS[name]) | st.binary(max_size=4),
        ),
        max_size=4,
    )

    def apply(seed: bytes, changed: list[tuple[int, int, bytes]]) -> bytes:
        for position, length, piece in changed:
            begin = position % (len(seed) + 1)
            seed = seed[:begin] + piece + seed[begin + length :]
        return seed

    return st.builds(apply, st.sampled_from(SEEDS[name]), changes)


CHANGED = {
    "envelope": replace_numbers,
    "records": replace_numbers,
    "metadata": replace_words,
}


def search(name: str) -> None:
    """Run a target on its mutated seeds; the first broken invariant is raised. Of what is quick,
    each single change is made before chance has its turn.
    """
    for data in CHANGED.get(name, lambda _: [])(name):
        TARGETS[name](data)

    @settings(
        max_examples=EXAMPLES[name],
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        damage_seeds(name)
        if name in CHANGED
        else st.sampled_from(replace_words(name)) | damage_seeds(name)
    )
    def run_target(data: bytes) -> None:
        TARGETS[name](data)

    run_target()


@pytest.mark.parametrize("name", NAMES)
def test_every_seed_is_taken_as_it_is(name: str) -> None:
    """The fuzzer starts from what the service really writes: no seed breaks an invariant."""
    for seed in SEEDS[name]:
        TARGETS[name](seed)


@pytest.mark.parametrize("name", NAMES)
def test_the_invariant_holds_for_mutated_values(name: str) -> None:
    """Real values with a few bytes or words changed."""
    search(name)


def parse_without_ranges(value: Any) -> Any:
    """A parser that looks at nothing but the length and the version."""
    if len(value or b"") < HEAD.size or value[0] != envelope.VERSION:
        raise envelope.EnvelopeInvalid
    _, flags, identity, *numbers = HEAD.unpack_from(value)
    return Head(identity.hex(), *numbers)._replace(has_left_out=flags == 1)


def refuse_all(_: Any) -> Any:
    """A parser that takes nothing."""
    raise envelope.EnvelopeInvalid


def read_until_count(value: bytes, head: Head) -> Any:
    """A reader that believes the number of records."""
    records, position = [], HEAD.size
    for _ in range(head.record_count):
        record, position = envelope._read_record(value, position, head)
        records.append(record)
    return records


def read_without_order(value: bytes, head: Head) -> Any:
    """A reader that does not look at the order of offsets, or at the stretch."""
    records, position = [], HEAD.size
    while position < len(value):
        record, position = envelope._read_record(value, position, head)
        records.append(record)
    return records


def read_empty_for_null(value: bytes, head: Head) -> Any:
    """A reader to which null is empty."""
    return [record._replace(key=record.key or None) for record in REAL_READ_RECORDS(value, head)]


def decode_any_version(text: str | None) -> Any:
    """A reader that takes every version for its own."""
    return REAL_DECODE(orjson.dumps(orjson.loads(text or "") | {"v": 1}).decode())


def decode_without_gap(text: str | None) -> Any:
    """A reader that loses the gap."""
    return replace(REAL_DECODE(text), gap=None)


def decide_without_epoch(state: RuleState, head: Head) -> Any:
    """A rule that takes each envelope for one of a newer run."""
    return rule.decide(state._replace(epoch=0), head)


def read_all_records(accepted: unwrap.AcceptedEnvelope) -> Any:
    """An envelope's records, also those that are copied."""
    return envelope.read_records(accepted.value, accepted.head)


REAL_DECODE, REAL_READ_RECORDS = frontier.decode, envelope.read_records
PLANTED: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "a head is not looked at": ("envelope", compiled_forward, "parse_head", parse_without_ranges),
    "no envelope is taken": ("envelope", compiled_forward, "parse_head", refuse_all),
    "the number of records is believed": (
        "envelope",
        compiled_forward,
        "read_records",
        read_until_count,
    ),
    "records have no order": ("envelope", compiled_forward, "read_records", read_without_order),
    "an empty key is null": ("envelope", compiled_forward, "read_records", read_empty_for_null),
    "stage two forgets the epoch": ("records", round_decisions, "decide", decide_without_epoch),
    "stage two writes what is copied": (
        "records",
        unwrap.AcceptedEnvelope,
        "read_records",
        read_all_records,
    ),
    "a frontier's version is not looked at": ("metadata", frontier, "decode", decode_any_version),
    "a frontier's gap is lost": ("metadata", frontier, "decode", decode_without_gap),
}


@pytest.mark.parametrize("defect", PLANTED)
def test_a_planted_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wrong parser breaks its target's invariant within the examples that the tests run: the
    check can fail.
    """
    target, module, name, wrong = PLANTED[defect]
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(
        (AssertionError, ValueError, TypeError, KeyError, AttributeError, IndexError)
    ):
        search(target)


def test_a_planted_text_that_no_process_can_be_given_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Settings that let unprintable texts through break the environment's invariant."""
    real = conversion.convert

    def convert_without_check(setting: Any, given_value: Any) -> Any:
        return (
            str(given_value)
            if setting.kind == "text" and not setting.choices
            else real(setting, given_value)
        )

    monkeypatch.setattr(conversion, "convert", convert_without_check)
    with pytest.raises(UnicodeEncodeError):
        TARGETS["environment"](b"REO_APPLICATION=\xff")


@pytest.mark.parametrize("written", [b'[["a"]]', b"true"])
def test_a_planted_text_that_the_file_does_not_have_is_found(
    written: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that take a value's printed form for a text break the settings file's invariant."""
    monkeypatch.setattr(conversion, "to_text", str)
    with pytest.raises(AssertionError):
        TARGETS["settings_file"](b'\x02{"application": %s}' % written)
