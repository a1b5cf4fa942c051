"""The command line: from arguments and settings to the command that does the one thing.

Every sub-command ends with a documented exit code: 0, or the code of the error (`common.errors`). Options are in `reo.arguments`. Commands are imported
when they are run, since some of them are slow to import.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence

from common import errors, logs, process, settings
from common.rules import TOPIC_NAME
from common.settings import Settings
from reo import interrupt
from reo.arguments import parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = parser().parse_args(arguments)
    if given.command == "demo":
        from reo.demo import demo

        return demo.run(given.seed, given.kills, given.json)
    if given.command == "executor":
        from replicator import executor

        return executor.run()
    if given.command == "config" and given.what == "import":
        from reo import config

        return config.import_relay(given.files, given.with_secrets)
    loaded = _settings(given)
    if isinstance(loaded, int):
        return loaded
    if given.command == "run" or getattr(given, "watch", False):
        return COMMANDS[given.command](loaded, given)
    interrupted = interrupt.ends_at_once(given.command)
    try:
        return COMMANDS[given.command](loaded, given)
    except BaseException:
        if not interrupted():
            raise
        return interrupt.said(given.command)


def _run(loaded: Settings, given: argparse.Namespace) -> int:
    from reo.supervisor import Supervisor

    stages = (given.stage,) if given.stage else ("deduplicator", "replicator")
    return process.run("reo", lambda read, stopping: Supervisor(read, stages, stopping).run(), loaded)


def _check(loaded: Settings, given: argparse.Namespace) -> int:
    from reo import check

    return check.command(loaded, given.json)


def _status(loaded: Settings, given: argparse.Namespace) -> int:
    from reo import status

    return status.command(loaded, given.json, given.watch, given.every)


def _lag(loaded: Settings, given: argparse.Namespace) -> int:
    from reo import lag

    return lag.command(loaded, given.json, given.max_records, given.max_seconds)


def _verify(loaded: Settings, given: argparse.Namespace) -> int:
    from reo import verify

    return verify.command(loaded, given.json, given.resume)


def _recover(loaded: Settings, given: argparse.Namespace) -> int:
    from reo import recover

    return recover.command(loaded, given.apply, given.json)


def _inspect(loaded: Settings, given: argparse.Namespace) -> int:
    from reo import inspect

    return inspect.command(loaded, given.json, given.partition, given.begin, given.count)


def _topics(loaded: Settings, given: argparse.Namespace) -> int:
    from reo import config_drift

    return config_drift.command(loaded, given.apply, given.json)


def _config(loaded: Settings, given: argparse.Namespace) -> int:
    from reo import config

    return config.show(loaded, given.json)


def _offsets(loaded: Settings, given: argparse.Namespace) -> int:
    from reo import offsets

    return offsets.command(loaded, given.group, given.apply, given.json)


COMMANDS: Mapping[str, Callable[[Settings, argparse.Namespace], int]] = {
    "run": _run, "check": _check, "status": _status, "lag": _lag, "verify": _verify, "recover": _recover, "inspect": _inspect, "topics": _topics,
    "config": _config, "offsets": _offsets}


def _settings(given: argparse.Namespace) -> Settings | int:
    options = {**_named(given.topic or []), "stop_at_end": getattr(given, "stop_at_end", None)}
    try:
        return settings.load(os.environ, given.settings, {name: text for name, text in options.items() if text is not None})
    except errors.SettingsInvalid as wrong:
        logs.without_settings("reo", wrong, wrong.exit_code)
        return wrong.exit_code


def _named(topics: Sequence[str]) -> dict[str, str]:
    """One plain name leaves the other settings of the one-topic form as they are."""
    if len(topics) == 1 and TOPIC_NAME.fullmatch(topics[0]):
        return {"source.topic": topics[0], "topics": ""}
    return {"topics": ",".join(topics), **dict.fromkeys(settings.ONE_TOPIC, "")} if topics else {}
