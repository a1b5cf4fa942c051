"""The fuzzer's invariants, checked with mutated real values; what the fuzzer has found; and that it
would notice a wrong parser.

`fuzz.targets` says what each invariant is. Here hypothesis chooses the inputs, always the same
ones; `make fuzz` searches on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from common import frontier, origin
from common.errors import ForeignRecord, SettingsInvalid
from common.origin import parse
from common.settings import conversion, load, settings_file
from fuzz.messages import frame, parse_messages
from fuzz.naive_reading import ORIGIN_FIELDS
from fuzz.seeds import ORIGINS, SEEDS, WORDS
from fuzz.seeds import origin as encoded
from fuzz.targets import REQUIRED_SETTINGS, TARGETS

EXAMPLES = {
    "origin_header": 600,
    "records": 400,
    "metadata": 500,
    "environment": 60,
    "settings_file": 60,
}
NAMES = tuple(TARGETS)


TOKENS = re.compile(rb'"[^"]*"|[-\w.]+')


def numbers_changed(name: str) -> list[bytes]:
    """Every seed with each integer of an origin, or of the first one of a batch, beginning with
    each word.
    """
    origin_at = {"origin_header": 0, "records": 2}[name]
    begins = [origin_at + begin for begin, _ in ORIGIN_FIELDS]
    return [
        seed[:begin] + word + seed[begin + len(word) :]
        for seed in SEEDS[name]
        for begin in begins
        for word in WORDS["origin_header"]
    ]


def words_changed(name: str) -> list[bytes]:
    """Every seed with each token replaced by each word: most are well-formed still."""
    places = [(seed, token.span()) for seed in SEEDS[name] for token in TOKENS.finditer(seed)]
    return [
        seed[:begin] + word + seed[end:] for seed, (begin, end) in places for word in WORDS[name]
    ]


def damaged(name: str) -> st.SearchStrategy[bytes]:
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


CHANGED = {"origin_header": numbers_changed, "records": numbers_changed, "metadata": words_changed}


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
        damaged(name) if name in CHANGED else st.sampled_from(words_changed(name)) | damaged(name)
    )
    def holds(data: bytes) -> None:
        TARGETS[name](data)

    holds()


@pytest.mark.parametrize("name", NAMES)
def test_every_seed_is_taken_as_it_is(name: str) -> None:
    """The fuzzer starts from what the service really writes: no seed breaks an invariant."""
    for seed in SEEDS[name]:
        TARGETS[name](seed)


@pytest.mark.parametrize("name", NAMES)
def test_the_invariant_holds_for_mutated_values(name: str) -> None:
    """Real values with a few bytes or words changed."""
    search(name)


def trusting(header: bytes | None) -> Any:
    """A parser that looks at nothing but the length."""
    if len(header or b"") != origin.LAYOUT.size:
        raise ValueError
    _, identity, epoch, partition, kind, offset, timestamp_ms, batch, sequence = (
        origin.LAYOUT.unpack(header or b"")
    )
    return origin.Origin(
        partition, offset, timestamp_ms, kind, epoch, batch, sequence, identity.hex()
    )


def unsigned(header: bytes | None) -> Any:
    """One that takes the source offset for an unsigned number."""
    found = REAL_PARSE((header or b"")[:22] + bytes(8) + (header or b"")[30:])
    return msgspec.structs.replace(
        found, source_offset=int.from_bytes((header or b"")[22:30], "big")
    )


def refusing(_: bytes | None) -> Any:
    """A parser that takes nothing."""
    raise ValueError


def unversioned(text: str | None) -> Any:
    """A reader that takes every version for its own."""
    return REAL_DECODE(orjson.dumps(orjson.loads(text or "") | {"v": 1}).decode())


def forgetful(text: str | None) -> Any:
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


REAL_DECODE, REAL_PARSE = frontier.decode, parse
PLANTED: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "an origin is not looked at": ("origin_header", origin, "parse", trusting),
    "an origin's offset has no sign": ("origin_header", origin, "parse", unsigned),
    "no origin is taken": ("origin_header", origin, "parse", refusing),
    "a batch's origins are not looked at": (
        "records",
        origin,
        "parse_all",
        lambda values: [trusting(value) for value in values],
    ),
    "a batch's offsets have no sign": (
        "records",
        origin,
        "parse_all",
        lambda values: [unsigned(value) for value in values],
    ),
    "a frontier's version is not looked at": ("metadata", frontier, "decode", unversioned),
    "a frontier's link is lost": ("metadata", frontier, "decode", forgetful),
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

    def careless(setting: Any, given_value: Any) -> Any:
        return (
            str(given_value)
            if setting.kind == "text" and not setting.choices
            else real(setting, given_value)
        )

    monkeypatch.setattr(conversion, "convert", careless)
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


# What the fuzzer has found


@pytest.mark.parametrize("place", ORIGIN_FIELDS)
def test_a_number_below_its_least_is_refused(place: tuple[int, int]) -> None:
    """Found by origin_header, in another form: a frontier that was committed with what is no offset
    could not be read again.
    """
    begin, end = place
    header = ORIGINS[0][:begin] + b"\x80" + bytes(end - begin - 1) + ORIGINS[0][end:]
    with pytest.raises(ValueError, match="out of range"):
        parse(header)
    TARGETS["origin_header"](header)


def test_a_batch_with_such_a_number_is_refused_as_a_whole() -> None:
    """Found by records: the same, in stage two's loop; one such record is a ForeignRecord and moves
    no frontier of the batch.
    """
    second = encoded(0, 12, sequence=5)
    batch = frame(0, 0, encoded()) + frame(0, 0, second[:46] + b"\xff" * 8)
    TARGETS["records"](batch)
    from deduplicator.unwrap import split_by_partition

    with pytest.raises(ForeignRecord, match="at offset 1: "):
        split_by_partition(list(parse_messages(batch)))


@pytest.mark.parametrize("version", [True, 1.0])
def test_a_version_that_only_equals_1_is_refused(version: object) -> None:
    """Found by metadata: what this service writes has the number 1 there."""
    text = orjson.dumps(orjson.loads(SEEDS["metadata"][0]) | {"v": version})
    with pytest.raises(ValueError, match="not version 1"):
        frontier.decode(text.decode())
    TARGETS["metadata"](text)


@pytest.mark.parametrize("value", ["\udcff", "a\0b", "a\nb"])
def test_a_text_that_clients_do_not_take_is_refused(value: str) -> None:
    """Found by environment: a client's own UnicodeEncodeError or a child that cannot be started,
    for ever, instead of one message.
    """
    with pytest.raises(SettingsInvalid, match="REO_APPLICATION: printable characters are expected"):
        load(REQUIRED_SETTINGS | {"REO_APPLICATION": value})


def test_a_file_that_can_not_be_looked_for_is_refused() -> None:
    """Found by reading for the environment target: a name longer than the system allows was an
    OSError.
    """
    with pytest.raises(SettingsInvalid, match="the settings file does not exist"):
        load(REQUIRED_SETTINGS | {"REO_SETTINGS_FILE": "x" * 5000})


def test_an_ini_file_is_read_as_it_stands(tmp_path: Path) -> None:
    """Found by settings_file: INI was left out with a warning (dynaconf reads it with a package
    that is not installed).
    """
    file = tmp_path / "reo.ini"
    file.write_text(
        "application = 1_000\n[source]\nbootstrap_servers = a:1,b:2\ntopic ="
        " 2024\n[destination]\nbootstrap_servers = c:1\n[log]\nlevel = DEBUG\n"
    )
    loaded = load({}, str(file))
    assert (
        loaded.application,
        loaded.source_cluster.bootstrap_servers,
        loaded.source_topic,
        loaded.log.level,
    ) == ("1_000", "a:1,b:2", "2024", "DEBUG")


def test_a_file_of_an_unknown_form_is_refused(tmp_path: Path) -> None:
    """Found by settings_file: a settings file called `reo.conf` was not read at all, and nobody was
    told.
    """
    file = tmp_path / "reo.conf"
    file.write_text("application = x\n")
    with pytest.raises(SettingsInvalid, match="must end with its format, one of"):
        load(REQUIRED_SETTINGS, str(file))


@pytest.mark.parametrize("written", ["null", "1_000", "1.10", "true", "{a: b}", "[[a]]", '"@none"'])
def test_a_text_that_the_file_does_not_say_is_refused(tmp_path: Path, written: str) -> None:
    """Found by settings_file: `null` was the application None, `1_000` the application 1000, a list
    Python's way to print it.
    """
    file = tmp_path / "reo.yaml"
    file.write_text(f"application: {written}\n")
    with pytest.raises(SettingsInvalid, match=r"put it in quotes|unknown setting"):
        load(REQUIRED_SETTINGS, str(file))


def test_a_list_of_brokers_is_a_list_of_brokers(tmp_path: Path) -> None:
    """Found by settings_file: a YAML list of brokers became an address that begins with a
    bracket.
    """
    file = tmp_path / "reo.yaml"
    file.write_text("source:\n  bootstrap_servers: ['a:1', 'b:2']\n  topic: orders\n")
    assert (
        load({"REO_DESTINATION_BOOTSTRAP_SERVERS": "c:1"}, str(file)).source.bootstrap_servers
        == "a:1,b:2"
    )


def test_a_file_that_refers_to_itself_is_refused(tmp_path: Path) -> None:
    """YAML can; it ends with a message and not with Python's recursion limit."""
    file = tmp_path / "reo.yaml"
    file.write_text("source: &a\n  topic: *a\n")
    with pytest.raises(SettingsInvalid, match="cannot be read"):
        load(REQUIRED_SETTINGS, str(file))
