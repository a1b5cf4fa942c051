"""The arguments of the command line and their help: every `--help` has examples before the options,
because most readers look for these.

Options that are settings have the settings' names; all other settings come from the environment or
the settings file. The commands that move what belongs to a topic are in `reo.migration.arguments`.
"""

from __future__ import annotations

from reo import help_examples
from reo.migration.arguments import add_acls, add_cutover, add_offsets, add_topics
from reo.parser_parts import (
    Commands,
    ExamplesParser,
    add_result_options,
    add_settings_options,
    parse_count,
    parse_seconds,
)
from reo.version import VERSION


def build_parser() -> ExamplesParser:
    """All commands and their options, in the order in which the help lists them."""
    top = ExamplesParser(
        prog="reo",
        description="Copies Kafka topics from one cluster to another exactly once.",
        examples=help_examples.ALL,
    )
    top.add_argument("--version", action="version", version=f"reo {VERSION}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_check(commands)
    _add_run(commands)
    _add_status(commands)
    _add_lag(commands)
    _add_verify(commands)
    _add_recover(commands)
    add_topics(commands)
    _add_inspect(commands)
    _add_config(commands)
    add_offsets(commands)
    add_acls(commands)
    add_cutover(commands)
    _add_setup(commands)
    _add_completion(commands)
    _add_executor(commands)
    return top


def _add_check(commands: Commands) -> None:
    check = commands.add_parser(
        "check",
        help="check everything that can be known before a start; changes nothing",
        examples=help_examples.CHECK,
    )
    add_result_options(check)


def _add_run(commands: Commands) -> None:
    run = commands.add_parser(
        "run", help="run the service: both stages, or one of them", examples=help_examples.RUN
    )
    run.add_argument(
        "stage", nargs="?", choices=("replicator", "deduplicator"), help="only this stage"
    )
    run.add_argument(
        "--stop-at-end",
        action="store_const",
        const="true",
        help="copy the records that exist at the start, then end",
    )
    add_settings_options(run)


def _add_status(commands: Commands) -> None:
    status = commands.add_parser(
        "status",
        help="offsets, lags and rates of every partition, from the clusters alone",
        examples=help_examples.STATUS,
    )
    status.add_argument("--watch", action="store_true", help="continue until it is interrupted")
    status.add_argument(
        "--every",
        type=parse_seconds,
        default=2.0,
        metavar="SECONDS",
        help="with --watch: how often (default 2)",
    )
    add_result_options(status)


def _add_lag(commands: Commands) -> None:
    lag = commands.add_parser("lag", help="how far the copy is behind", examples=help_examples.LAG)
    lag.add_argument(
        "--max-records",
        type=parse_count,
        metavar="N",
        help="exit code 36 when more records wait, of all partitions together",
    )
    lag.add_argument(
        "--max-seconds",
        type=parse_seconds,
        metavar="S",
        help="exit code 36 when a record waits longer",
    )
    add_result_options(lag)


def _add_verify(commands: Commands) -> None:
    verify = commands.add_parser(
        "verify",
        help="compare the destination with the source, record by record",
        examples=help_examples.VERIFY,
    )
    verify.add_argument(
        "--resume",
        metavar="FILE",
        help=(
            "continue the comparison that this file describes, if it exists, and write the progress"
            " to it"
        ),
    )
    verify.add_argument(
        "--wait",
        type=parse_seconds,
        default=0,
        metavar="SECONDS",
        help="first wait until the copy has caught up, at most so long",
    )
    add_result_options(verify)


def _add_recover(commands: Commands) -> None:
    recover = commands.add_parser(
        "recover",
        help="find a lost frontier from the data; changes nothing without --apply",
        examples=help_examples.RECOVER,
    )
    recover.add_argument(
        "--apply", action="store_true", help="commit the frontiers; the service must be stopped"
    )
    add_result_options(recover)


def _add_inspect(commands: Commands) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="print the envelopes on the intermediate topics in readable form",
        examples=help_examples.INSPECT,
    )
    inspect.add_argument("--partition", type=parse_count, metavar="N", help="only this partition")
    inspect.add_argument(
        "--from",
        type=parse_count,
        metavar="OFFSET",
        dest="begin",
        help="begin at this offset of the intermediate topic (default: the last envelopes)",
    )
    inspect.add_argument(
        "--count",
        type=parse_count,
        default=10,
        metavar="N",
        help="how many envelopes of each partition (default 10)",
    )
    inspect.add_argument(
        "--records", action="store_true", help="print the source records in them, too"
    )
    add_result_options(inspect)


def _add_config(commands: Commands) -> None:
    config = commands.add_parser(
        "config",
        help="show or import settings",
        examples=help_examples.SHOW + help_examples.IMPORT.removeprefix("examples:\n"),
    ).add_subparsers(dest="what", required=True, metavar="WHAT")
    show = config.add_parser(
        "show",
        help="print every setting in effect, and where its value comes from; secrets are hidden",
        examples=help_examples.SHOW,
    )
    add_result_options(show)
    imported = config.add_parser(
        "import",
        help="print kaf-relay's or MirrorMaker 2's configuration as a settings file of reo",
        examples=help_examples.IMPORT,
    )
    imported.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="kaf-relay's TOML, or mm2.properties, or a connector's JSON; a later file wins",
    )
    imported.add_argument(
        "--flow",
        metavar="A->B",
        default="",
        help="MirrorMaker 2: which flow (default: the one that is enabled)",
    )
    imported.add_argument(
        "--mode",
        choices=("single", "failover"),
        default="",
        help=(
            "what kaf-relay is started with: the first source alone, or all of them (default:"
            " failover where there are several)"
        ),
    )
    imported.add_argument("--with-secrets", action="store_true", help="print passwords too")


def _add_setup(commands: Commands) -> None:
    setup = commands.add_parser(
        "setup",
        help="fetch the jars of stage one; once, after an installation",
        examples=help_examples.SETUP,
    )
    setup.add_argument(
        "--from",
        metavar="FOLDER",
        dest="folder",
        help="the jars are in this folder; nothing is fetched",
    )


def _add_completion(commands: Commands) -> None:
    completion = commands.add_parser(
        "completion",
        help="print a shell's script that completes commands and options",
        examples=help_examples.COMPLETION,
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")


def _add_executor(commands: Commands) -> None:
    commands.add_parser(
        "executor",
        help=(
            "an executor of stage one, which Spark starts in its pods on Kubernetes; never started"
            " by hand"
        ),
        examples=help_examples.EXECUTOR,
    )
