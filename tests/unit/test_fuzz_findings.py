"""What the fuzzer has found, each as a test: values and files that the service takes or refuses now
as it says.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from common import frontier
from common.errors import ForeignRecord, SettingsInvalid
from common.origin import parse
from common.settings import load
from fuzz.messages import frame, parse_messages
from fuzz.naive_reading import ORIGIN_FIELDS
from fuzz.seeds import ORIGINS, SEEDS
from fuzz.seeds import origin as encoded
from fuzz.targets import REQUIRED_SETTINGS, TARGETS


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
