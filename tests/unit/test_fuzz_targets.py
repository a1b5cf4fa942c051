"""The fuzzer's invariants, checked with mutated real values, and that it would notice a wrong
parser. (What it has found is in `test_fuzz_findings`.)

`fuzz.targets` says what each invariant is. Here hypothesis chooses the inputs, always the same
ones; `make fuzz` searches on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from common import frontier, origin
from common.origin import parse
from common.settings import conversion, settings_file
from deduplicator.compiled_batch import CompiledBatch
from fuzz.naive_reading import ORIGIN_FIELDS
from fuzz.seeds import SEEDS, WORDS
from fuzz.targets import TARGETS

EXAMPLES = {
    "origin_header": 600,
    "records": 400,
    "compiled_scan": 400,
    "metadata": 500,
    "environment": 60,
    "settings_file": 60,
}
NAMES = tuple(TARGETS)


TOKENS = re.compile(rb'"[^"]*"|[-\w.]+')


def replace_numbers(name: str) -> list[bytes]:
    """Every seed with each integer of an origin, or of the first one of a batch, beginning with
    each word.
    """
    origin_at = {"origin_header": 0, "records": 2, "compiled_scan": 2}[name]
    begins = [origin_at + begin for begin, _ in ORIGIN_FIELDS]
    return [
        seed[:begin] + word + seed[begin + len(word) :]
        for seed in SEEDS[name]
        for begin in begins
        for word in WORDS["origin_header"]
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
    "origin_header": replace_numbers,
    "records": replace_numbers,
    "compiled_scan": replace_numbers,
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


def parse_by_length(header: bytes | None) -> Any:
    """A parser that looks at nothing but the length."""
    if len(header or b"") != origin.LAYOUT.size:
        raise ValueError
    _, identity, epoch, partition, kind, offset, timestamp_ms, batch, sequence = (
        origin.LAYOUT.unpack(header or b"")
    )
    return origin.Origin(
        partition, offset, timestamp_ms, kind, epoch, batch, sequence, identity.hex()
    )


def parse_unsigned(header: bytes | None) -> Any:
    """One that takes the source offset for an unsigned number."""
    found = REAL_PARSE((header or b"")[:22] + bytes(8) + (header or b"")[30:])
    return msgspec.structs.replace(
        found, source_offset=int.from_bytes((header or b"")[22:30], "big")
    )


def refuse_all(_: bytes | None) -> Any:
    """A parser that takes nothing."""
    raise ValueError


def decode_any_version(text: str | None) -> Any:
    """A reader that takes every version for its own."""
    return REAL_DECODE(orjson.dumps(orjson.loads(text or "") | {"v": 1}).decode())


def decode_without_link(text: str | None) -> Any:
    """A reader that loses the link."""
    found = REAL_DECODE(text)
    return type(found)(
        found.rule._replace(link=None),
        found.source_identity,
        found.source_partitions,
        found.destination_topic_id,
        found.destination_known,
        found.sent,
    )


def scan_without_epoch(batch: CompiledBatch, state: frontier.RuleState, identity: str) -> Any:
    """A scan that takes each record for one of a newer run."""
    return REAL_SCAN(batch, state._replace(epoch=0), identity)


REAL_DECODE, REAL_PARSE, REAL_SCAN = frontier.decode, parse, CompiledBatch.scan
PLANTED: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "an origin is not looked at": ("origin_header", origin, "parse", parse_by_length),
    "an origin's offset has no sign": ("origin_header", origin, "parse", parse_unsigned),
    "no origin is taken": ("origin_header", origin, "parse", refuse_all),
    "a batch's origins are not looked at": (
        "records",
        origin,
        "parse_all",
        lambda values: [parse_by_length(value) for value in values],
    ),
    "a batch's offsets have no sign": (
        "records",
        origin,
        "parse_all",
        lambda values: [parse_unsigned(value) for value in values],
    ),
    "the compiled scan forgets the epoch": (
        "compiled_scan",
        CompiledBatch,
        "scan",
        scan_without_epoch,
    ),
    "a frontier's version is not looked at": ("metadata", frontier, "decode", decode_any_version),
    "a frontier's link is lost": ("metadata", frontier, "decode", decode_without_link),
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


@pytest.mark.parametrize("written", [b"null", b'[["a"]]', b"true"])
def test_a_planted_text_that_the_file_does_not_have_is_found(
    written: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that take a value's printed form for a text break the settings file's invariant."""
    monkeypatch.setattr(settings_file, "to_text", str)
    with pytest.raises(AssertionError):
        TARGETS["settings_file"](b'\x02{"application": %s}' % written)
