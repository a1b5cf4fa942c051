"""The command line: reads arguments and settings, and runs the sub-command.

Every sub-command ends with a documented exit code: 0, or the code of the error (`common.errors`).
`reo.arguments` has the options. A command is imported when it runs, because some of them are slow
to import.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence

import argcomplete
from argcomplete.shell_integration import shellcode

from common import errors, logs, stage_process
from common import settings as reo_settings
from common.settings import Settings
from common.topic_rules import TOPIC_NAME
from reo import interrupt
from reo.arguments import build_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = build_parser()
    argcomplete.autocomplete(parser)
    options = parser.parse_args(arguments)
    without_settings = WITHOUT_SETTINGS.get(
        "config import" if getattr(options, "what", "") == "import" else options.command
    )
    if without_settings:
        return _end_command(lambda: without_settings(options), options.command)
    loaded = _load_settings(options)
    if isinstance(loaded, int):
        return loaded
    if options.command == "run":
        return _run(loaded, options)
    was_interrupted = interrupt.install_handler(options.command)
    try:
        return _end_command(lambda: COMMANDS[options.command](loaded, options), options.command)
    except BaseException:
        if not was_interrupted():
            raise
        return interrupt.report_interrupt(options.command)


def _end_command(run: Callable[[], int], name: str) -> int:
    """The exit code; an error of reo's is printed and gives its own."""
    try:
        code = run()
    except errors.ReoError as error:
        print(f"reo {name}: {error}", file=sys.stderr)
        code = error.exit_code
    interrupt.print_last_words()
    return code


def _run(settings: Settings, options: argparse.Namespace) -> int:
    from reo.service.supervisor import Supervisor

    stages = (options.stage,) if options.stage else ("deduplicator", "replicator")
    return stage_process.run(
        "reo",
        lambda settings_now, stopping: Supervisor(settings_now, stages, stopping).run(),
        settings,
    )


def _check(settings: Settings, options: argparse.Namespace) -> int:
    from reo import check

    return check.run_command(settings, options.json)


def _run_status(settings: Settings, options: argparse.Namespace) -> int:
    from reo.progress import status

    return status.run_command(settings, options.json, options.watch, options.every)


def _run_lag(settings: Settings, options: argparse.Namespace) -> int:
    from reo.progress import lag

    return lag.run_command(settings, options.json, options.max_records, options.max_seconds)


def _verify(settings: Settings, options: argparse.Namespace) -> int:
    from reo import verify

    return verify.run_command(settings, options.json, options.resume, options.wait)


def _recover(settings: Settings, options: argparse.Namespace) -> int:
    from reo import recover

    return recover.run_command(settings, options.apply, options.json)


def _inspect(settings: Settings, options: argparse.Namespace) -> int:
    from reo.progress import inspect

    return inspect.run_command(
        settings,
        options.json,
        options.partition,
        options.begin,
        options.count,
        options.records,
    )


def _run_topics(settings: Settings, options: argparse.Namespace) -> int:
    from reo.migration import config_drift

    return config_drift.run_command(settings, options.apply, options.json)


def _run_config(settings: Settings, options: argparse.Namespace) -> int:
    from reo import config

    return config.show_settings(settings, options.json)


def _run_offsets(settings: Settings, options: argparse.Namespace) -> int:
    from reo.migration import offsets_sync, offsets_translate

    if options.offsets == "sync":
        return offsets_sync.run_command(settings, options.groups, options.interval, options.json)
    return offsets_translate.run_command(settings, options.group, options.apply, options.json)


def _run_acls(settings: Settings, options: argparse.Namespace) -> int:
    from reo.migration import acls

    return acls.run_command(settings, options.apply, options.with_write, options.json)


def _run_cutover(settings: Settings, options: argparse.Namespace) -> int:
    from reo.migration import cutover_back, cutover_subcommands

    if options.what == "back":
        return cutover_back.run_back(settings)
    if options.what == "plan" or options.dry_run:
        return cutover_subcommands.plan_command(
            settings,
            options.groups,
            options.quiet,
            options.resume,
            options.what == "run" and options.deny_writes,
            options.json,
        )
    return cutover_subcommands.run_command(
        settings, options.groups, options.quiet, options.resume, options.deny_writes, options.json
    )


def _run_executor(_: argparse.Namespace) -> int:
    from replicator.spark import executor_command

    return executor_command.run()


def _import(options: argparse.Namespace) -> int:
    from reo import config

    return config.import_files(options.files, options.with_secrets, options.mode, options.flow)


def _run_setup(options: argparse.Namespace) -> int:
    from reo import setup_spark

    try:
        return setup_spark.run_command(options.folder)
    except KeyboardInterrupt:
        return interrupt.report_interrupt("setup")


def _run_completion(options: argparse.Namespace) -> int:
    print(shellcode(["reo"], shell=options.shell))
    return 0


COMMANDS: Mapping[str, Callable[[Settings, argparse.Namespace], int]] = {
    "run": _run,
    "check": _check,
    "status": _run_status,
    "lag": _run_lag,
    "verify": _verify,
    "recover": _recover,
    "inspect": _inspect,
    "topics": _run_topics,
    "config": _run_config,
    "offsets": _run_offsets,
    "cutover": _run_cutover,
    "acls": _run_acls,
}
WITHOUT_SETTINGS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "executor": _run_executor,
    "config import": _import,
    "setup": _run_setup,
    "completion": _run_completion,
}


def _load_settings(options: argparse.Namespace) -> Settings | int:
    overrides = {
        **_build_topic_settings(options.topic or []),
        "stop_at_end": getattr(options, "stop_at_end", None),
        "source.mode": options.mode,
    }
    try:
        return reo_settings.load(
            os.environ,
            options.settings,
            {name: text for name, text in overrides.items() if text is not None},
        )
    except errors.SettingsInvalid as error:
        logs.report_settings_error("reo", error, error.exit_code)
        return error.exit_code


def _build_topic_settings(topics: Sequence[str]) -> dict[str, str]:
    """The settings of `--topic`. One plain name keeps the other settings of the one-topic form;
    everything else replaces them.
    """
    if len(topics) == 1 and TOPIC_NAME.fullmatch(topics[0]):
        return {"source.topic": topics[0], "topics": ""}
    return (
        {"topics": ",".join(topics), **dict.fromkeys(reo_settings.ONE_TOPIC, "")} if topics else {}
    )
