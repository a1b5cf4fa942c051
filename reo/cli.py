"""The command line.

Sub-commands do one thing each and end with a documented exit code: 0, or the code of the error (`common.errors`). Options are
settings of the same name; everything else is set by the environment or the settings file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from common import errors, process, settings
from common.rules import TOPIC_NAME
from common.settings import Settings

EXAMPLES = """examples:
  reo run                        both stages, settings from the environment
  reo run --stop-at-end          copy what is there, then end with exit code 0
  reo run --topic a=b --topic '^logs-.*=all:3'   several topics, patterns, mappings (then REO_APPLICATION has to be set)
  reo run deduplicator           stage two alone
  reo verify                     hold the destination against the source, record by record
  reo recover                    the frontier is gone or was reset: find it from the data; --apply commits it
  reo topics                     are the copy's topics made as the source's is; --apply makes them so
  reo config show                every setting in effect, and where its value comes from
  reo offsets translate --group G   where consumer group G goes on at the destination; --apply commits it there
  reo demo                       two brokers, 336,776 records, both stages killed again and again, verified
"""


OFFSETS = """examples:
  reo offsets translate --group billing           per partition: where billing stands at the source, and the same place at the destination
  reo offsets translate --group billing --apply   stop billing's consumers, commit that, start them at the destination
  reo offsets translate --group billing --json    for programs

The place is exact: the next record of the group is the next one at the destination, and from there to the end of the copy both sides are
compared record by record. The service may run. Exit code 0: all partitions with an offset are translated; 32: one has no such place (yet, or
any more); 30: the copy differs; 33: the group has members at the destination; 28: offsets are undecided. Then nothing is committed.
A route with a mapping, or with other sources beside it, has no such places (31).
"""


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    top = argparse.ArgumentParser(prog="reo", description="Copies Kafka topics from one cluster to another exactly once.", epilog=EXAMPLES,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="the service: both stages, or one of them")
    run.add_argument("stage", nargs="?", choices=("replicator", "deduplicator"), help="only this stage")
    run.add_argument("--stop-at-end", action="store_const", const="true", help="copy what is there at the start, then end")
    verify = commands.add_parser("verify", help="hold the destination against the source, record by record")
    recover = commands.add_parser("recover", help="find a lost frontier from the data; changes nothing without --apply")
    recover.add_argument("--apply", action="store_true", help="commit what was found; the service has to be stopped")
    recover.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    topics = commands.add_parser("topics", help="hold the configurations of the copy's topics against the source's; changes nothing without --apply")
    topics.add_argument("--apply", action="store_true", help="make them alike")
    topics.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    config = commands.add_parser("config", help="the settings").add_subparsers(dest="what", required=True, metavar="WHAT")
    show = config.add_parser("show", help="every setting in effect, and where its value comes from; secrets are not shown")
    show.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    relay = config.add_parser("import", help="kaf-relay's configuration as a settings file of reo's, on standard output")
    relay.add_argument("files", nargs="+", metavar="FILE", help="its TOML; several are merged in order, as it does")
    relay.add_argument("--with-secrets", action="store_true", help="print passwords too")
    translate = _offsets(commands)
    for command in (run, verify, recover, topics, show, translate):
        command.add_argument("--settings", metavar="FILE", help="settings file (TOML, YAML, JSON or INI)")
        command.add_argument("--topic", action="append", metavar="TOPIC[=COPY[:MAPPING]]",
                             help="what to copy: a topic, a pattern that begins with ^; may be repeated, and replaces what the other settings name")
    demo = commands.add_parser("demo", help="the main job on this machine, with two real brokers")
    demo.add_argument("--seed", type=int, help="chooses when the stages are killed; printed at the end")
    demo.add_argument("--kills", type=int, default=2, help="of each stage (default 2)")
    return top


def _offsets(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    offsets = commands.add_parser("offsets", help="a consumer group moves from the source to the destination").add_subparsers(
        dest="offsets", required=True, metavar="COMMAND")
    translate = offsets.add_parser("translate", help="where the group goes on at the destination; changes nothing without --apply", description=OFFSETS,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    translate.add_argument("--group", required=True, help="the consumer group, by the same name on both clusters")
    translate.add_argument("--apply", action="store_true", help="commit it at the destination; the group has to be empty there, and is never moved back")
    translate.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    return translate


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = parser().parse_args(arguments)
    if given.command == "demo":
        from reo.demo import demo

        return demo.run(given.seed, given.kills)
    if given.command == "config" and given.what == "import":
        from reo import config

        return config.import_relay(given.files, given.with_secrets)
    loaded = _settings(given)
    if isinstance(loaded, int):
        return loaded
    if given.command == "verify":
        from reo import verify

        return verify.command(loaded)
    if given.command == "recover":
        from reo import recover

        return recover.command(loaded, given.apply, given.json)
    if given.command == "topics":
        from reo import alike

        return alike.command(loaded, given.apply, given.json)
    if given.command == "config":
        from reo import config

        return config.show(loaded, given.json)
    if given.command == "offsets":
        from reo import offsets

        return offsets.command(loaded, given.group, given.apply, given.json)
    from reo.supervisor import Supervisor

    stages = (given.stage,) if given.stage else ("deduplicator", "replicator")
    return process.run("reo", lambda read, stopping: Supervisor(read, stages, stopping).run(), loaded)


def _settings(given: argparse.Namespace) -> Settings | int:
    options = {**_named(given.topic or []), "stop_at_end": getattr(given, "stop_at_end", None)}
    try:
        return settings.load(os.environ, given.settings, {name: text for name, text in options.items() if text is not None})
    except errors.SettingsInvalid as wrong:
        print(f"reo: {wrong}", file=sys.stderr)
        return wrong.exit_code


def _named(topics: Sequence[str]) -> dict[str, str]:
    """One plain name leaves the other settings of the one-topic form as they are."""
    if len(topics) == 1 and TOPIC_NAME.fullmatch(topics[0]):
        return {"source.topic": topics[0], "topics": ""}
    return {"topics": ",".join(topics), **dict.fromkeys(settings.ONE_TOPIC, "")} if topics else {}
