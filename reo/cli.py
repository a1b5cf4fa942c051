"""The command line: reads arguments and settings, and runs the command (`reo.commands`).

Every command ends with a documented exit code: 0, or the code of the error (`common.errors`).
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import argcomplete
from argcomplete.shell_integration import shellcode

from common import errors, logs, stage_process
from common import settings as reo_settings
from common.settings import Settings
from common.topic_rules import TOPIC_NAME
from reo import interrupt
from reo.commands import Command, build_parser
from reo.standard_streams import OutputUnwritable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = build_parser()
    argcomplete.autocomplete(parser)
    options = vars(parser.parse_args(arguments))
    command: Command = options.pop("command")
    name = command.words.split()[0]
    if not command.has_settings:
        try:
            return _end_command(lambda: load_function(command)(**options), name)
        except KeyboardInterrupt:
            return interrupt.report_interrupt(name)
    try:
        settings = _load_settings(options)
    except errors.SettingsInvalid as error:
        logs.report_settings_error("reo", error, error.exit_code)
        return error.exit_code
    if name == "run":  # handles signals and errors as the stages do
        return run_service(settings, **options)
    was_interrupted = interrupt.install_handler(name)
    try:
        return _end_command(lambda: load_function(command)(settings, **options), name)
    except BaseException as unexpected:
        if was_interrupted():
            return interrupt.report_interrupt(name)
        if isinstance(unexpected, OutputUnwritable):
            raise
        if isinstance(unexpected, BrokenPipeError) and interrupt.is_output_closed():
            interrupt.print_last_words()
            raise
        traceback.print_exc()
        interrupt.print_last_words()
        return errors.StageFailed.exit_code


def load_function(command: Command) -> Callable[..., int]:
    """What runs a command."""
    module, _, name = command.function.partition(":")
    function: Callable[..., int] = getattr(import_module(module), name)
    return function


def _end_command(run: Callable[[], int], name: str) -> int:
    """The exit code; an error of reo's is printed and gives its own."""
    try:
        code = run()
    except errors.ReoError as error:
        print(f"reo {name}: {error}", file=sys.stderr)
        code = error.exit_code
    interrupt.print_last_words()
    return code


def run_service(settings: Settings, stage: str | None) -> int:
    """`reo run`: both stages, or one of them."""
    from reo.service.supervisor import Supervisor

    stages = (stage,) if stage else ("deduplicator", "replicator")
    return stage_process.run(
        "reo",
        lambda settings_now, stopping: Supervisor(settings_now, stages, stopping).run(),
        settings,
    )


def print_completion(shell: str) -> int:
    """`reo completion`."""
    print(shellcode(["reo"], shell=shell))
    return 0


def _load_settings(options: dict[str, Any]) -> Settings:
    """With the options that are settings, which are taken out of `options`."""
    files = options.pop("settings")
    overrides = {
        **_build_topic_settings(options.pop("topic") or []),
        "stop_at_end": options.pop("stop_at_end", None),
        "source.mode": options.pop("mode"),
    }
    return reo_settings.load(
        os.environ, files, {name: text for name, text in overrides.items() if text is not None}
    )


def _build_topic_settings(topics: Sequence[str]) -> dict[str, str]:
    """The settings of `--topic`. One plain name keeps the other settings of the one-topic form;
    everything else replaces them.
    """
    if len(topics) == 1 and TOPIC_NAME.fullmatch(topics[0]):
        return {"source.topic": topics[0], "topics": ""}
    return (
        {"topics": ",".join(topics), **dict.fromkeys(reo_settings.ONE_TOPIC, "")} if topics else {}
    )
