"""What the command line takes, and its help: every `--help` begins with examples, since that is what it is opened for.

Options that are settings have the settings' names; everything else is set by the environment or the settings file.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
from typing import Any, NoReturn

from reo.version import VERSION

ALL = """examples:
  reo check                      can it run, and what would it do; changes nothing
  reo run                        both stages, settings from the environment
  reo run --stop-at-end          copy what is there, then end with exit code 0
  reo run --topic a=b --topic '^logs-.*=all:3'   several topics, patterns, mappings (then REO_APPLICATION has to be set)
  reo status --watch             where every partition stands, and how fast it moves
  reo lag --max-seconds 60       exit code 36 when the copy is further behind
  reo verify                     hold the destination against the source, record by record
  reo recover                    the frontier is gone or was reset: find it from the data; --apply commits it
  reo inspect --partition 0      what stage one has written to the intermediate topics
  reo topics                     are the copy's topics made as the source's is; --apply makes them so
  reo config show                every setting in effect, and where its value comes from
  reo offsets translate --group G   where consumer group G goes on at the destination; --apply commits it there
  reo demo                       two brokers, 336,776 records, both stages killed again and again, verified
  reo COMMAND --help             examples of one command
"""
CHECK = """examples:
  reo check                      one line for each thing that was looked at: ok, warning or error, and what to do
  reo check --json | jq '.findings[] | select(.level != "ok")'
  reo check && reo run           run only where nothing is wrong

Looks at both clusters: reachability, versions, permissions, transactions, cycles, the three topics of each route (partitions, sizes, retention,
timestamps, replicas), the frontier and the source behind it; where the copy goes to PostgreSQL, at the database, its user's rights and the tables.
Says what would be made and where the copy would begin. Changes nothing.
Exit code 0: no errors (warnings are none); else the code of the first error, which is what the service would end with.
"""
RUN = """examples:
  REO_SOURCE_BOOTSTRAP_SERVERS=a:9092 REO_SOURCE_TOPIC=orders REO_DESTINATION_BOOTSTRAP_SERVERS=b:9092 reo run
  reo run --settings reo.toml    the same from a file
  reo run --stop-at-end          copy what is there at the start, then end with exit code 0
  reo run deduplicator           stage two alone, for instance on a machine of its own

Runs until SIGTERM or SIGINT (exit code 0), or until a person is needed: the exit codes are in README.md.
"""
STATUS = """examples:
  reo status                     every partition: source end, stage one, stage two, lags, rates; members of the group; open transactions
  reo status --watch             the same, renewed every two seconds, on a terminal
  reo status --json              one JSON object; with --watch one a line

Read from the clusters alone, so it works from any machine that reaches them, and when nothing runs. It takes a second: two looks give the rates. What only
the service knows (the last error, whether stage one lives) is called unknown. Exit code 0: everything could be looked at, whatever it looks like.
"""
LAG = """examples:
  reo lag                        of each stage and of both together, per partition and in all, in records and seconds
  reo lag --max-seconds 60       exit code 36 when a record has waited longer
  reo lag --max-records 100000 --json

Records are counted in offsets; seconds are how long the first record that waits has been there, at the source by its own timestamp.
"""
VERIFY = """examples:
  reo verify                     every record of both topics, per partition, in order; the first difference of each with its offsets
  reo verify --resume verified.json   note what was compared, and go on from there the next time
  reo verify --json --topic orders

A progress bar with the time that is left is shown on a terminal. A topic with cleanup.policy=compact is held against its copy by the newest record of
each key. Exit code 0: equal; 30: a difference; 31: a route with a mapping, a filter or other sources beside it cannot be compared.
"""
RECOVER = """examples:
  reo recover                    what the group says, what the data says, and what would be committed; changes nothing
  reo recover --apply            commit it, with the service stopped
  reo recover --json

Exit code 22: the data does not tell either; 28: a transaction hangs, and the message has the command that ends it; 29: the service runs;
30: the destination is not the source's copy.
"""
TOPICS = """examples:
  reo topics                     what is not set at the destination as it is at the source
  reo topics --apply             make it so, also while the service runs
  reo topics --json
"""
INSPECT = """examples:
  reo inspect                    the last ten records of each partition of the intermediate topics: where each comes from, its run, batch and sequence
  reo inspect --topic orders --partition 3 --from 120 --count 50
  reo inspect --json | jq 'select(.foreign)'     a JSON object for each record

What is committed at the destination is deleted from the intermediate topics, so a copy that keeps up leaves little to see. Changes nothing.
"""
SHOW = """examples:
  reo config show                every setting, its value, and what gave it; no secret is shown
  reo config show --json
"""
IMPORT = """examples:
  reo config import relay.toml > reo.toml    kaf-relay's configuration as a settings file; what has no counterpart is on standard error
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
EXECUTOR = """examples:
  reo executor                   in a pod, with the environment that Spark gives its executors on Kubernetes; never by hand

With replicator.master=k8s://… Spark starts executors of stage one in pods of reo's image, with this one argument. Exit code 2: this is no such pod.
"""
DEMO = """examples:
  reo demo                       two brokers on this machine, kills at moments that a seed chooses
  reo demo --seed 7 --kills 3    the same kills again
  reo demo --json
"""


class Parser(argparse.ArgumentParser):
    """Its help begins with the examples."""

    def __init__(self, *, examples: str = "", **more: Any) -> None:
        super().__init__(**more)
        self.examples = examples

    def error(self, message: str) -> NoReturn:
        """With the word that was probably meant."""
        found = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        near = difflib.get_close_matches(found[1], re.findall(r"'(.*?)'", found[2]), 1) if found else []
        super().error(message + (f". Did you mean {near[0]!r}?" if near else ""))

    def format_help(self) -> str:
        """Examples, then usage and options."""
        return f"{self.examples}\n{super().format_help()}" if self.examples else super().format_help()


def parser() -> Parser:
    """The arguments."""
    top = Parser(prog="reo", description="Copies Kafka topics from one cluster to another exactly once.", examples=ALL)
    top.add_argument("--version", action="version", version=f"reo {VERSION}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="everything that can be known before running; changes nothing", examples=CHECK)
    run = commands.add_parser("run", help="the service: both stages, or one of them", examples=RUN)
    run.add_argument("stage", nargs="?", choices=("replicator", "deduplicator"), help="only this stage")
    run.add_argument("--stop-at-end", action="store_const", const="true", help="copy what is there at the start, then end")
    status = commands.add_parser("status", help="where every partition stands, from the clusters alone", examples=STATUS)
    status.add_argument("--watch", action="store_true", help="go on until it is interrupted")
    status.add_argument("--every", type=_seconds, default=2.0, metavar="SECONDS", help="with --watch: how often (default 2)")
    lag = commands.add_parser("lag", help="how far the copy is behind", examples=LAG)
    lag.add_argument("--max-records", type=_count, metavar="N", help="exit code 36 when more records wait, of all partitions together")
    lag.add_argument("--max-seconds", type=_seconds, metavar="S", help="exit code 36 when a record waits longer")
    verify = commands.add_parser("verify", help="hold the destination against the source, record by record", examples=VERIFY)
    verify.add_argument("--resume", metavar="FILE", help="begin where this file says that an earlier comparison was, and note there how far this one is")
    recover = commands.add_parser("recover", help="find a lost frontier from the data; changes nothing without --apply", examples=RECOVER)
    recover.add_argument("--apply", action="store_true", help="commit what was found; the service has to be stopped")
    topics = commands.add_parser("topics", help="hold the configurations of the copy's topics against the source's; changes nothing without --apply",
                                 examples=TOPICS)
    topics.add_argument("--apply", action="store_true", help="make them alike")
    inspect = commands.add_parser("inspect", help="what is on the intermediate topics, readable", examples=INSPECT)
    inspect.add_argument("--partition", type=_count, metavar="N", help="only this partition")
    inspect.add_argument("--from", type=_count, metavar="OFFSET", dest="begin", help="from this offset of the intermediate topic on (default: the last ones)")
    inspect.add_argument("--count", type=_count, default=10, metavar="N", help="how many records of each partition (default 10)")
    config = commands.add_parser("config", help="the settings", examples=SHOW + IMPORT.removeprefix("examples:\n")).add_subparsers(
        dest="what", required=True, metavar="WHAT")
    show = config.add_parser("show", help="every setting in effect, and where its value comes from; secrets are not shown", examples=SHOW)
    relay = config.add_parser("import", help="kaf-relay's configuration as a settings file of reo's, on standard output", examples=IMPORT)
    relay.add_argument("files", nargs="+", metavar="FILE", help="its TOML; several are merged in order, as it does")
    relay.add_argument("--with-secrets", action="store_true", help="print passwords too")
    translate = _offsets(commands)
    for command in (check, status, lag, verify, recover, inspect, topics, show, translate):
        command.add_argument("--json", action="store_true", help="JSON instead of text, for programs")
    for command in (check, run, status, lag, verify, recover, inspect, topics, show, translate):
        command.add_argument("--settings", metavar="FILE", help="settings file (TOML, YAML, JSON or INI)")
        command.add_argument("--topic", action="append", metavar="TOPIC[=COPY[:MAPPING]]",
                             help="what to copy: a topic, a pattern that begins with ^; may be repeated, and replaces what the other settings name")
    demo = commands.add_parser("demo", help="the main job on this machine, with two real brokers", examples=DEMO)
    demo.add_argument("--seed", type=int, help="chooses when the stages are killed; printed at the end")
    demo.add_argument("--kills", type=int, default=2, help="of each stage (default 2)")
    demo.add_argument("--json", action="store_true", help="JSON instead of text, for programs")
    commands.add_parser("executor", help="what Spark starts in its pods on Kubernetes: an executor of stage one; never started by hand", examples=EXECUTOR)
    return top


def _offsets(commands: argparse._SubParsersAction[Parser]) -> Parser:
    offsets = commands.add_parser("offsets", help="a consumer group moves from the source to the destination", examples=OFFSETS).add_subparsers(
        dest="offsets", required=True, metavar="COMMAND")
    translate: Parser = offsets.add_parser("translate", help="where the group goes on at the destination; changes nothing without --apply", examples=OFFSETS)
    translate.add_argument("--group", required=True, help="the consumer group, by the same name on both clusters")
    translate.add_argument("--apply", action="store_true", help="commit it at the destination; the group has to be empty there, and is never moved back")
    return translate


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"a whole number from 0 on is expected, not {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"seconds from 0 on are expected, not {text!r}")
    return found
