"""What a user sees of a cluster that cannot be reached, and of a command that is interrupted while
it waits for one: by the words, from outside.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from common.errors import ReoError, Stop
from reo.version import VERSION
from tests.harness.commands import reo_with
from tests.harness.kafka import ROOT, until
from tests.unit.common.settings.test_settings import GOOD
from tools.demo import fair_share
from tools.demo.broker import free_port

COMMANDS = (
    "check",
    "status",
    "status --watch --json",
    "lag",
    "verify",
    "recover",
    "inspect",
    "topics",
    "offsets translate --group g",
)


def build_environment(source: str) -> dict[str, str]:
    """Settings with this source."""
    return GOOD | {
        "REO_SOURCE_BOOTSTRAP_SERVERS": source,
        "REO_DESTINATION_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "REO_CONNECT_TIMEOUT_S": "1",
    }


def read_reason(environment: dict[str, str], *words: str) -> str:
    """What a command says of a cluster that cannot be reached, once the client has told the reason
    in the short timeout.
    """

    def find_reason() -> str | None:
        said = reo_with(environment, *words, exit_code=10).stderr
        return said if " cannot be reached: " in said else None

    return until(find_reason, "the reason is said")


def test_a_name_that_cannot_be_resolved_is_said() -> None:
    """With the name, the reason, and the setting."""
    said = read_reason(build_environment("no-such-host.invalid:9092"), "lag")
    assert "the source cluster at no-such-host.invalid:9092 cannot be reached: " in said
    assert "Failed to resolve 'no-such-host.invalid:9092'" in said
    assert "Correct the host in source.bootstrap_servers" in said


def test_a_port_where_nobody_listens_is_said() -> None:
    """The same."""
    port = free_port()
    said = read_reason(build_environment(f"127.0.0.1:{port}"), "lag")
    assert f"the source cluster at 127.0.0.1:{port} cannot be reached: " in said
    assert (
        "Connection refused. Nothing listens there: start the broker, or correct the port in"
        " source.bootstrap_servers" in said
    )


@pytest.mark.parametrize(
    "address",
    [
        "host:abc",
        "host",
        "host:0",
        "host:70000",
        ":9092",
        "a b:9092",
        "host:9092,",
        "http://host:9092/x",
        "http://host:9092",
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_tried(address: str) -> None:
    """Exit code 2, and the form that is expected."""
    said = reo_with(build_environment(address), "lag", exit_code=2)
    assert "REO_SOURCE_BOOTSTRAP_SERVERS: " in said.stderr + said.stdout
    assert "host:port is expected, with a port from 1 to 65535" in said.stderr + said.stdout


@pytest.mark.parametrize(
    "address", ["host:9092", "a-b.c:1, d:65535", "[::1]:9092", "SSL://host:9093"]
)
def test_addresses_that_clients_take_are_taken(address: str) -> None:
    """`config show` reads the settings, and asks nobody."""
    reo_with(build_environment(address), "config", "show")


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, marks=() if words == "lag" else pytest.mark.long) for words in COMMANDS],
)
def test_ctrl_c_ends_a_command_that_waits(words: str, tmp_path: Path) -> None:
    """A cluster takes the connection and says nothing: a client would wait a minute for it. The
    last line says so, 130, no traceback.
    """
    with socket.create_server(("127.0.0.1", 0)) as silent, (tmp_path / "said").open("w+") as said:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        environment = build_environment(address) | {
            "REO_DESTINATION_BOOTSTRAP_SERVERS": address,
            "REO_CONNECT_TIMEOUT_S": "60",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "reo", *words.split()],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], **environment},
            stdout=said,
            stderr=said,
        )
        connection, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        assert fair_share.wait(process, 30) == 130
        connection.close()
        said.seek(0)
        *before, last = said.read().splitlines()
        assert last == f"reo {words.split(maxsplit=1)[0]}: interrupted"
        assert [line for line in before if not line.startswith("waiting for the ")] == []


def test_ctrl_c_while_the_command_is_imported(tmp_path: Path) -> None:
    """It comes while a library is imported that takes long: the same end, before there is a command
    to name.
    """
    (tmp_path / "dynaconf.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    said = reo_with(GOOD | {"PYTHONPATH": str(tmp_path)}, "lag", exit_code=130)
    assert said.stderr == "reo: interrupted\n"


def test_a_mistyped_command_is_guessed() -> None:
    """A command of a command and an option too; and the version is said."""
    assert "Did you mean 'verify'?" in reo_with(GOOD, "verfy", exit_code=2).stderr
    assert "Did you mean 'translate'?" in reo_with(GOOD, "offsets", "translte", exit_code=2).stderr
    assert (
        "Did you mean '--max-seconds'?"
        in reo_with(GOOD, "lag", "--max-second-s", "6", exit_code=2).stderr
    )
    assert reo_with(GOOD, "--version").stdout == f"reo {VERSION}\n"


def test_kaf_relays_form_of_a_topic_is_answered_with_ours() -> None:
    """It has a colon where reo has an equals sign, and the colon is the partition's here."""
    said = reo_with(
        GOOD | {"REO_APPLICATION": "a"}, "lag", "--topic", "orders:copy", exit_code=2
    ).stderr
    (line,) = said.splitlines()[1:]
    assert (
        line
        == "  --topic: 'orders:copy' is not a legal topic name (letters, digits, dot, underscore,"
        " hyphen; at most 249). To copy orders to copy, write orders=copy"
    )


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (
            "value >",
            "Spark refuses 'value >': [PARSE_SYNTAX_ERROR] Syntax error at or near end of input",
        ),
        pytest.param(
            "rand() > 0.5",
            "'rand() > 0.5' can give different results for the same record",
            marks=pytest.mark.long,
        ),
        pytest.param("nobody = 1", "[UNRESOLVED_COLUMN.WITH_SUGGESTION]", marks=pytest.mark.long),
        pytest.param("partition = 1", "", marks=pytest.mark.long),
    ],
)
def test_a_condition_that_spark_refuses_is_found_by_check(condition: str, words: str) -> None:
    """Without a cluster: with Spark's own words, what to do, and the exit code that the service
    would end with.
    """
    environment = build_environment("127.0.0.1:1") | {
        "REO_FILTER_SQL": condition,
        "REO_REPLICATOR_MASTER": "spark://nobody:7077",
    }
    found = json.loads(
        reo_with(environment, "check", "--json", exit_code=2 if words else 10).stdout
    )["findings"]
    (finding,) = [finding for finding in found if finding["about"] == "filter.sql"]
    if not words:
        assert (finding["level"], finding["seen"]) == ("ok", "Spark takes the condition")
        return
    assert words in finding["seen"]
    assert (finding["error"], finding["exit_code"], finding["to_do"]) == (
        "SettingsInvalid",
        2,
        "Correct filter.sql",
    )


def test_every_error_of_check_says_what_to_do() -> None:
    """Also as JSON, each for itself; a message of its own ends with it."""
    to_do = {
        "source cluster": (
            "Correct the host in source.bootstrap_servers, or make its name known here (DNS)"
        ),
        "destination cluster": (
            "Nothing listens there: start the broker, or correct the port in"
            " destination.bootstrap_servers"
        ),
    }

    def find_errors() -> list[dict[str, Any]] | None:
        environment = build_environment("no-such-host.invalid:9092")
        said = reo_with(environment, "check", "--json", exit_code=10).stdout
        found = [one for one in json.loads(said)["findings"] if one["level"] == "error"]
        return found if {one["about"]: one["to_do"] for one in found} == to_do else None

    # a client may tell the reason later than in the short timeout
    said = until(find_errors, f"the errors say {to_do}")
    assert all(finding["seen"].endswith(finding["to_do"]) for finding in said)
    of_kinds = [
        kind.default_to_do for kind in ReoError.by_exit_code.values() if issubclass(kind, Stop)
    ]
    assert len(set(of_kinds) - {ReoError.default_to_do}) == len(of_kinds), (
        "each kind of stop has its own"
    )


def test_make_setup_leaves_the_command(tmp_path: Path) -> None:
    """`.venv/bin/reo`, from any folder."""
    done = subprocess.run(
        [ROOT / ".venv" / "bin" / "reo", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"reo {VERSION}\n"
