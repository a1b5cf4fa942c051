"""What the fuzzer has found, each as a test: values and files that the service takes or refuses now
as it says.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from common import frontier
from common.envelope import HEAD, EnvelopeInvalid, parse_head
from common.errors import ForeignRecord, SettingsInvalid
from common.routes import TopicPartition
from common.settings import load
from deduplicator.partition import Partition
from tools.fuzz.messages import frame, parse_messages
from tools.fuzz.rounds import REQUIRED_SETTINGS, ROUTE, Rounds
from tools.fuzz.seeds import ENVELOPES, SEEDS, build_envelope
from tools.fuzz.targets import COMMITTED_FRONTIER, TARGETS

TP = TopicPartition("orders-proxy", 0)


def make_rounds(batch: bytes, records_max: int, can_forward: bool) -> Rounds:
    """Of partition 0, from the committed frontier."""
    partition = Partition(TP, ROUTE, 0, COMMITTED_FRONTIER)
    return Rounds(parse_messages(batch), [partition], records_max, can_forward)


@pytest.mark.parametrize("place", [10, 18, 22, 30, 46, 50])
def test_a_negative_number_is_refused(place: int) -> None:
    """Found in another form, when a record had a header of its own: a frontier that was committed
    with what is no offset could not be read again.
    """
    value = ENVELOPES[0][:place] + b"\x80" + ENVELOPES[0][place + 1 :]
    with pytest.raises(EnvelopeInvalid, match="out of range"):
        parse_head(value)
    TARGETS["envelope"](b"\0" + value)


def test_a_batch_with_such_a_number_moves_nothing() -> None:
    """Found by records, likewise: an envelope that is no such one is a ForeignRecord, and what came
    before it in its round is not committed either.
    """
    second = build_envelope(0, 46, 47, (47,))
    damaged = second[: HEAD.size + 1] + b"\x80" + second[HEAD.size + 2 :]
    rounds = make_rounds(frame(0, build_envelope()) + frame(0, damaged), 8, can_forward=False)
    with pytest.raises(ForeignRecord, match="at offset 1: "):
        rounds.run()
    assert rounds.partitions.assigned[TP].frontier == COMMITTED_FRONTIER


@pytest.mark.parametrize("records_max", [5, 8, 9, 12, 13])
def test_an_envelope_that_is_too_large_for_a_round_comes_after_a_small_one(
    records_max: int,
) -> None:
    """Found by records: the small one was written whole, in C, and nothing of the large one, which
    is written record by record; but the frontier moved over its records.
    """
    batch = frame(0, build_envelope()) + frame(0, ENVELOPES[4])
    one_by_one = make_rounds(batch, records_max, can_forward=False)
    mixed = make_rounds(batch, records_max, can_forward=True)
    for rounds in (one_by_one, mixed):
        rounds.run()
        assert rounds.partitions.assigned[TP].frontier.source_offset == 60
        assert len(rounds.list_written(TP)) == 13
    assert mixed.list_written(TP) == one_by_one.list_written(TP)
    assert mixed.counts == one_by_one.counts


@pytest.mark.parametrize("version", [True, 1.0])
def test_a_version_that_only_equals_1_is_refused(version: object) -> None:
    """Found by metadata: what this service writes has the number 1 there."""
    text = orjson.dumps(orjson.loads(SEEDS["metadata"][0]) | {"v": version})
    with pytest.raises(ValueError, match="no version of the frontier"):
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
    with pytest.raises(SettingsInvalid, match=r"put it in quotes|unknown setting|has no value"):
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
