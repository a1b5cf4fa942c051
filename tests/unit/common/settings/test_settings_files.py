"""Settings files: every form that is read, several of them one over the other, and files that are
refused.
"""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from common.settings import load
from tests.unit.common.settings.test_settings import GOOD, read_refusal

FORMS = {
    "reo.toml": (
        'connect_timeout_s = 5\n[source]\nbootstrap_servers = "f:1"\ntopic ='
        ' "2024"\n[destination]\nbootstrap_servers = "g:1"\n'
    ),
    "reo.yaml": (
        'connect_timeout_s: 5\nsource:\n  bootstrap_servers: "f:1"\n  topic: "2024"\ndestination:\n'
        '  bootstrap_servers: "g:1"\n'
    ),
    "reo.json": (
        '{"connect_timeout_s": 5, "source": {"bootstrap_servers": "f:1", "topic": "2024"},'
        ' "destination": {"bootstrap_servers": "g:1"}}'
    ),
}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_settings_file_is_read(tmp_path: Path, name: str) -> None:
    """Every form that the documentation names; a topic in quotes stays a text."""
    file = tmp_path / name
    file.write_text(FORMS[name])
    loaded = load({}, str(file))
    assert (
        loaded.source_cluster.bootstrap_servers,
        loaded.source_topic,
        loaded.connect_timeout_s,
    ) == ("f:1", "2024", 5)


def test_later_sources_win(tmp_path: Path) -> None:
    """File, then environment, then command line."""
    file = tmp_path / "reo.toml"
    file.write_text(FORMS["reo.toml"])
    environment = {
        "REO_SETTINGS_FILE": str(file),
        "REO_SOURCE_TOPIC": "from-environment",
        "REO_DESTINATION_TOPIC": "from-environment",
    }
    loaded = load(environment, None, {"destination.topic": "from-arguments"})
    assert loaded.source_cluster.bootstrap_servers == "f:1"
    assert (loaded.source_topic, loaded.destination_topic) == ("from-environment", "from-arguments")


def test_of_several_files_the_later_one_wins(tmp_path: Path) -> None:
    """Name by name, options and topics too, whether they are named by arguments or by the
    variable.
    """
    files = [tmp_path / name for name in ("one.toml", "two.yaml")]
    files[0].write_text(
        FORMS["reo.toml"] + '[source.consumer_options]\nclient.rack = "a"\nfetch.max.bytes = 7\n'
    )
    files[1].write_text('source:\n  topic: "other"\n  consumer_options:\n    client.rack: b\n')
    for environment, arguments in (
        ({"REO_SETTINGS_FILE": f"{files[0]}:{files[1]}"}, ()),
        ({}, list(map(str, files))),
    ):
        loaded = load(environment, arguments)
        assert (loaded.source_topic, loaded.source_cluster.bootstrap_servers) == ("other", "f:1")
        assert loaded.source.consumer_options == {"client.rack": "b", "fetch.max.bytes": "7"}
        assert str(loaded.given_by["source.topic"]) == f"{files[1]}: source.topic"
    first, second = read_refusal({}, [str(files[0]), str(tmp_path / "three.toml")]).splitlines()
    assert first == "1 setting is wrong:"
    assert second.startswith(
        f"  {tmp_path / 'three.toml'}: the settings file does not exist or cannot be read"
    )


def test_topics_of_several_files_are_all_copied(tmp_path: Path) -> None:
    """Name by name, as all else: a later file changes the destination of one topic and adds
    another.
    """
    files = [tmp_path / name for name in ("one.toml", "two.toml")]
    files[0].write_text('application = "a"\n[topics]\norders = "orders"\ninvoices = "invoices"\n')
    files[1].write_text('[topics]\ninvoices = "copy"\nlogs = "all:3"\n')
    several = {name: value for name, value in GOOD.items() if name != "REO_SOURCE_TOPIC"}
    assert load(several, list(map(str, files))).topics_ == "orders=orders,invoices=copy,logs=all:3"


def test_wrong_files_are_refused_together_with_what_else_is_wrong(tmp_path: Path) -> None:
    """A file that is not there, one that cannot be read, one with a name that nobody knows; the
    environment's errors stand beside.
    """
    assert "the settings file does not exist" in read_refusal(
        GOOD | {"REO_SETTINGS_FILE": str(tmp_path / "none.toml")}
    )
    broken = tmp_path / "broken.toml"
    broken.write_text("[source\n")
    assert "cannot be read" in read_refusal(GOOD, str(broken))
    unknown = tmp_path / "unknown.toml"
    unknown.write_text('[source]\ntopics = "x"\n')
    message = read_refusal(GOOD | {"REO_METRICS_PORT": "x"}, str(unknown))
    assert "unknown setting source.topics (did you mean source.topic?)" in message
    assert "REO_METRICS_PORT" in message


ONE_TOPIC_IN = {
    ".toml": '[source]\ntopic = "a"\n',
    ".yaml": "source:\n  topic: a\n",
    ".json": '{"source": {"topic": "a"}}',
    ".ini": "[source]\ntopic = a\n",
}
ADDRESSES = {name: text for name, text in GOOD.items() if name != "REO_SOURCE_TOPIC"}


@pytest.mark.parametrize("suffix", sorted(ONE_TOPIC_IN))
def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path, suffix: str) -> None:
    """Editors on Windows write one."""
    file = tmp_path / f"reo{suffix}"
    file.write_bytes(codecs.BOM_UTF8 + ONE_TOPIC_IN[suffix].encode())
    assert load(ADDRESSES, str(file)).source_topic == "a"


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".toml", '[source]\ntopic = "a"\ntopic = "b"\n'),
        (".yaml", "source:\n  topic: a\n  topic: b\n"),
        (".json", '{"source": {"topic": "a", "topic": "b"}}'),
        (".ini", "[source]\ntopic = a\ntopic = b\n"),
    ],
)
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, suffix: str, content: str) -> None:
    """Which of the two counts, a reader would have to guess."""
    file = tmp_path / f"reo{suffix}"
    file.write_text(content)
    assert "cannot be read" in read_refusal(ADDRESSES, str(file))


@pytest.mark.parametrize(
    ("suffix", "content"),
    [(".json", "[1]"), (".json", "5"), (".json", "null"), (".yaml", "- a\n"), (".yaml", "5\n")],
)
def test_a_file_without_names_is_refused(tmp_path: Path, suffix: str, content: str) -> None:
    """It is read, and sets nothing."""
    file = tmp_path / f"reo{suffix}"
    file.write_text(content)
    assert f"{file}: names with values are expected" in read_refusal(ADDRESSES, str(file))


@pytest.mark.parametrize(
    ("suffix", "content", "words"),
    [
        (".ini", "[source]\nsasl_password s3cret\n", "is expected in line 2"),
        (".ini", "[source]\nsasl_password czNjcmV0s3cret==\n", "setting source.sasl_password"),
        (".ini", "[source]\nsasl_password=a\nsasl_password=s3cret\n", "again in line 3"),
        (".yaml", "source:\n  sasl_password: *s3cret\n", "found undefined alias … in line 2"),
        (".yaml", "source:\n  sasl_password: !s3cret\n", "for the tag … in line 2"),
        (
            ".yaml",
            "source:\n  sasl_password: a\n  sasl_password: s3cret\n",
            'duplicate key "sasl_password" in line 3',
        ),
        (".yaml", "source:\n  sasl_password: '@int s3cret'\n", "Cannot convert …"),
        (".yaml", "source: ['s3cret'\n", "expected ',' or ']', but got '<stream end>' in line 2"),
        (".json", '{"source": {"sasl_password" "s3cret"}}', "line 1 column 29"),
        (".toml", "[source]\nsasl_password s3cret\n", "line 2, column 15"),
    ],
)
def test_what_cannot_be_read_is_not_repeated(
    tmp_path: Path, suffix: str, content: str, words: str
) -> None:
    """It may be the password: the message has the place."""
    file = tmp_path / f"reo{suffix}"
    file.write_text(content)
    message = read_refusal(ADDRESSES, str(file))
    assert words in message
    assert "s3cret" not in message


@pytest.mark.parametrize(
    ("suffix", "content", "words"),
    [
        (".toml", "[source]\ntopic = 5\n", "source.topic: a text is expected, not '5'"),
        (
            ".toml",
            "[source]\ntopic = 'a'\nsasl_password = 5\n",
            "source.sasl_password: a text is expected: put it in quotes",
        ),
        (".yaml", "application: x\ntopics: |\n  a\n  b\n", "topics: printable characters"),
        (".yaml", "application: x\ntopics:\n", "topics: it has no value: write one, or remove"),
        (".yaml", "source:\n  topic: a\nmetrics:\n  port:\n", "metrics.port: it has no value"),
    ],
)
def test_one_mistake_is_one_error(tmp_path: Path, suffix: str, content: str, words: str) -> None:
    """A topic whose name is wrong is not said to be missing too."""
    file = tmp_path / f"reo{suffix}"
    file.write_text(content)
    first, second = read_refusal(ADDRESSES, str(file)).splitlines()
    assert first == "1 setting is wrong:"
    assert second.startswith(f"  {file}: {words}")


def test_what_is_missing_is_named_as_a_file_would_have_it(tmp_path: Path) -> None:
    """Who writes a file does not want to hear of variables."""
    file = tmp_path / "reo.toml"
    file.write_text('application = "x"\n')
    message = read_refusal({}, str(file))
    assert "REO_" not in message
    for words in (
        "source.bootstrap_servers is missing: ",
        "destination.bootstrap_servers is missing: ",
        "source.topic is missing: what to copy, or topics for several",
    ):
        assert f"  {words}" in message
