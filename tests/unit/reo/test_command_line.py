"""The command line's help, the commands on the pages about moving, and its answers to what it does
not understand; what commands do has tests of its own.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import list_stop_codes
from reo import cli, commands
from reo.commands import Command
from tests.harness.commands import ESCAPE
from tests.harness.kafka import ROOT
from tests.harness.moving_pages import PAGES, commands_of
from tests.unit.common.settings.test_settings import GOOD


def parsers(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every command, also those that only lead to others."""
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from parsers(inner, (*words, word))


ALL = [(words, parser) for words, parser in parsers(commands.build_parser())]
NAMES = [" ".join(("reo", *words)) for words, _ in ALL]
RESULTS = {
    "check",
    "status",
    "lag",
    "verify",
    "recover",
    "inspect",
    "heartbeat",
    "topics",
    "config show",
    "offsets translate",
    "offsets sync",
    "cutover plan",
    "cutover run",
    "acls",
}
"""Commands that print a result."""


@pytest.mark.parametrize(("words", "parser"), ALL, ids=NAMES)
def test_help_has_examples_that_work(
    words: tuple[str, ...], parser: argparse.ArgumentParser
) -> None:
    """Behind the usage, and before the options; each example is taken by the parser."""
    usage, block, _ = parser.format_help().split("\n\n", 2)
    assert usage.startswith("usage: reo")
    title, *lines = block.splitlines()
    assert title == "examples:"
    examples = [line for line in lines if re.match(r"  (\w+=\S+ )*reo ", line)]
    assert examples
    for example in examples:
        command = re.split(r" {3,}|\||&&| > ", example.strip().partition("reo ")[2])[0]
        given = shlex.split(command)
        if given != ["COMMAND", "--help"]:
            commands.build_parser().parse_args(given)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_the_commands_are_taken(page: Path) -> None:
    """Those in blocks, and those in the text."""
    in_text = [
        shlex.split(words)
        for words in re.findall(r"`reo ([^`…]+)`", " ".join(page.read_text().split()))
    ]
    assert commands_of(page)
    for words in [*commands_of(page), *in_text]:
        if words != ["offsets", "sync"]:
            commands.build_parser().parse_args(words)


@pytest.mark.parametrize(("words", "parser"), ALL, ids=NAMES)
def test_each_command_that_prints_a_result_has_json(
    words: tuple[str, ...], parser: argparse.ArgumentParser
) -> None:
    """And no other one says that it had."""
    assert ("--json" in parser.format_usage()) == (" ".join(words) in RESULTS)


@pytest.mark.parametrize("command", commands.COMMANDS, ids=lambda command: command.words)
def test_each_command_is_run(command: Command) -> None:
    """Its function has a parameter for each of its own options, and for the settings if it has any:
    the other options go into these.
    """
    (parser,) = (parser for words, parser in ALL if " ".join(words) == command.words)
    given = {action.dest for action in parser._actions} - {"help"}
    if command.has_settings:
        given -= {"mode", "topic", "stop_at_end"}
    signature = inspect.signature(cli.load_function(command))
    signature.bind(**dict.fromkeys(given))
    assert signature.return_annotation == "int"


@pytest.mark.parametrize(
    "given",
    [
        "lag --max-records x",
        "lag --max-records -1",
        "lag --max-seconds nan",
        "lag --max-seconds inf",
        "status --every -1",
        "status --every 0",
        "heartbeat beats --every 0.05",
        "heartbeat beats --port 65536",
        "offsets sync --interval 0",
        "inspect --count 0",
        "verify --resume",
        "offsets translate --group a\udcff",
        "nothing",
        "offsets",
        "",
    ],
)
def test_what_is_not_understood_is_exit_code_2(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As wrong settings; the message is on standard error."""
    with pytest.raises(SystemExit) as ended:
        cli.main(given.split())
    assert ended.value.code == 2
    assert "usage: reo" in capsys.readouterr().err


@pytest.mark.parametrize(
    "choices",
    ["'check', 'run', 'verify'", "check, run, verify"],
    ids=["Python 3.11", "Python 3.13"],
)
def test_a_mistyped_word_is_guessed(choices: str, capsys: pytest.CaptureFixture[str]) -> None:
    """However this version of Python writes down what it expected."""
    with pytest.raises(SystemExit):
        commands.build_parser().error(
            f"argument COMMAND: invalid choice: 'verfy' (choose from {choices})"
        )
    assert "Did you mean 'verify'?" in capsys.readouterr().err


def test_an_option_before_the_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """And not the word after it, which the parser would take for the command."""
    for words in (["--settings", "reo.toml", "check"], ["offsets", "--groups=a", "sync"]):
        with pytest.raises(SystemExit):
            commands.build_parser().parse_args(words)
        option = next(word for word in words if word.startswith("--")).partition("=")[0]
        said = capsys.readouterr().err
        assert f"{option} stands before the command: give it after the command" in said


def test_a_mistyped_option_is_named_and_not_the_word_after_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The parser would take that word for a stage. What is not mistyped stays: a value that begins
    with dashes after `=`, and an option that is cut short.
    """
    for words in (["run", "--topik", "x"], ["run", "replicator", "--topik=x"]):
        with pytest.raises(SystemExit):
            commands.build_parser().parse_args(words)
        said = capsys.readouterr().err
        assert "unrecognized arguments: --topik. Did you mean '--topic'?" in said, words
    assert commands.build_parser().parse_args(["run", "--topic=--x", "--setting", "f"]).topic == [
        "--x"
    ]


def test_exit_codes_in_the_help_are_codes_that_there_are() -> None:
    """Each number behind "exit code" or before an explanation of one."""
    said = {
        int(code)
        for _, parser in ALL
        for code in re.findall(r"(?:[Ee]xit code|;)\s+(\d+)(?=[:; ]|$)", parser.format_help())
    }
    assert said - {0, 130, 143} <= list_stop_codes()  # none of these is an error's
    assert said >= {22, 28, 30, 31, 32, 33, 36}


def test_no_colours_but_on_a_terminal() -> None:
    """Help and errors are plain on a pipe, whatever the terminal's type is said to be; on a
    terminal too, where Python colours none.
    """
    for words in (["--help"], ["check", "--help"], ["check"]):
        done = subprocess.run(
            [sys.executable, "-m", "reo", *words],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "TERM": "xterm-256color"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ESCAPE not in done.stdout + done.stderr


COMPLETE = """
eval "$(reo completion bash)"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMP_WORDS=($1) COMP_CWORD=1
_python_argcomplete reo
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("reo verif", {"verify"}),
        ("reo offsets translate --gr", {"--group"}),
        ("reo run d", {"deduplicator"}),
        ("reo completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes(tmp_path: Path, line: str, completed: set[str]) -> None:
    """The printed script, in a real bash: commands, options and their values."""
    (tmp_path / "reo").write_text(f'#!/bin/sh\nexec {sys.executable} -m reo "$@"\n')
    (tmp_path / "reo").chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", line],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {
        word for word in done.stdout.split() if not word.startswith("-h") and word != "--help"
    } == completed


def test_other_shells_have_scripts_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Each in its own language."""
    for shell, words in (("zsh", "#compdef reo"), ("fish", "complete --command reo")):
        assert cli.main(["completion", shell]) == 0
        assert words in capsys.readouterr().out


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_reads(unbuffered: str) -> None:
    """`reo … | head` ends as other programs do, without a traceback; the image has unbuffered
    output.
    """
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "reo", "completion", "bash"],
        stdout=writing,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        check=False,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_stop_keeps_its_exit_code_where_nothing_can_be_logged() -> None:
    """The disk of the log is full (full(4)): Python's own code for output that it could not write,
    120, would start the service again and again.
    """
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "reo", "run"],
            cwd=ROOT,
            env=os.environ | GOOD | {"JAVA_HOME": "/nonexistent"},
            stderr=full,
            check=False,
        )
    assert ended.returncode == 2


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("redirection", "reason"),
    [(">/dev/full", "No space left on device"), ("<&- >&-", "Bad file descriptor")],
)
def test_a_result_that_cannot_be_written_is_one_line(
    redirection: str, reason: str, unbuffered: str
) -> None:
    """And no success: whoever reads the file must not take it for whole. A command that has changed
    something says its last words nevertheless.
    """
    command = "import sys; from reo import cli, interrupt; from reo.__main__ import main; "
    command += "cli.main = lambda: interrupt.set_last_words(lambda: 'denied') or print('x' * 9999);"
    for words, last in (
        (["-m", "reo", "config", "init"], ""),
        (["-m", "reo", "config", "show"], ""),
        (["-c", command + "sys.exit(main())"], "denied\n"),
    ):
        ended = subprocess.run(
            ["bash", "-c", f'"$@" {redirection}', "bash", sys.executable, *words],
            cwd=ROOT,
            env=os.environ | GOOD | {"PYTHONUNBUFFERED": unbuffered},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        expected = f"reo: standard output cannot be written: {reason}\n{last}"
        assert (ended.returncode, ended.stderr) == (1, expected)


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "<&- >&- 2>&-"])
def test_an_error_that_cannot_be_written_keeps_its_exit_code(redirection: str) -> None:
    """No standard error, or a full one: the settings are missing."""
    ended = subprocess.run(
        ["bash", "-c", f'"$0" -m reo check {redirection}', sys.executable],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        check=False,
    )
    assert ended.returncode == 2


def test_results_are_utf_8_in_every_locale() -> None:
    """The file that `reo config init` prints is read as UTF-8."""
    printed = [
        subprocess.run(
            [sys.executable, "-m", "reo", "config", "init"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "LC_ALL": locale, "PYTHONUTF8": "0"}
            | {"PYTHONCOERCECLOCALE": "0"},
            capture_output=True,
            check=True,
        ).stdout
        for locale in ("C.UTF-8", "C")
    ]
    assert printed[0] == printed[1]
    assert not printed[0].isascii()


def test_a_module_that_hides_one_of_ours_is_named(tmp_path: Path) -> None:
    """A user's own `common` on PYTHONPATH stands before the one that is installed."""
    (tmp_path / "common.py").write_text("")
    ended = subprocess.run(
        [sys.executable, "-m", "reo", "--version"],
        cwd=tmp_path.parent,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"{tmp_path / 'common.py'} hides reo's package `common`" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
