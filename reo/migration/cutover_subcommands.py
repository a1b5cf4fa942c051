"""The sub-commands of `reo cutover`: plan, run and back, with what they print; the steps themselves
are in `reo.migration.cutover`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import orjson

from common import source_candidates
from common.errors import MoveRefused, ReoError
from common.kafka import needed_acls, permissions, topics
from common.kafka.clients import create_admin_client
from common.settings import Settings, destination_kind
from reo.migration.cutover import Cutover, prepare_steps
from reo.migration.cutover_plan import CutoverPlan, make_plan
from reo.migration.moving_topics import MovingTopics
from reo.migration.translation_report import format_offset
from reo.migration.write_denial import WriteDenial
from reo.output import align_columns

PLAN_INTERVAL_S = 3.0
PERMISSIONS: tuple[needed_acls.Command, ...] = ("lag", "verify", "offsets translate --apply")


def plan_command(
    settings: Settings,
    groups: str,
    quiet_s: float,
    resume: str | None,
    deny_writes: bool,
    as_json: bool,
) -> int:
    """`reo cutover plan`, and `reo cutover run --dry-run`: changes nothing."""
    settings = _prepare(settings, ("lag", "verify", "offsets translate"), deny_writes)
    plan = _make_plan(settings, groups, quiet_s, resume, deny_writes)
    print(plan.format_json() if as_json else plan.format_text())
    return 0


def _make_plan(
    settings: Settings, groups: str, quiet_s: float, resume: str | None, deny_writes: bool
) -> CutoverPlan:
    moving = MovingTopics(settings, groups)
    sources = topics.describe_sources(settings, moving.source_admin)
    to_compare = prepare_steps(settings, sources, resume).total_offsets
    if deny_writes:
        moving.write_denial.check_is_possible()
    try:
        denied = moving.write_denial.find_denied(sorted({route.source_topic for route in sources}))
    # without an authorizer, or the right to see ACLs: the run says so when it is asked for a DENY
    except ReoError:
        denied = []
    return make_plan(moving, PLAN_INTERVAL_S, quiet_s, to_compare, denied, deny_writes)


def run_command(
    settings: Settings,
    groups: str,
    quiet_s: float,
    resume: str | None,
    deny_writes: bool,
    as_json: bool,
) -> int:
    """`reo cutover run`: progress on standard error, the result on standard output."""
    settings = _prepare(settings, PERMISSIONS, deny_writes)
    cutover = Cutover(
        settings, groups, quiet_s, resume, lambda line: print(line, file=sys.stderr, flush=True)
    )
    rows = cutover.run(deny_writes)
    if as_json:
        print(
            orjson.dumps(
                {
                    "records_compared": cutover.compared,
                    "groups": [
                        {"group": name, "partitions": [row.to_dict() for row in translated]}
                        for name, translated in rows.items()
                    ],
                }
            ).decode()
        )
        return 0
    table = [
        ("group", "source", "offset", "destination", "offset"),
        *(
            (
                name,
                str(row.source),
                format_offset(row.source_offset),
                str(row.destination),
                format_offset(row.continues_at),
            )
            for name, translated in rows.items()
            for row in translated
        ),
    ]
    print(
        "\n".join(
            [
                *align_columns(table),
                (
                    "the topics have moved: start producers and consumers at the destination, and"
                    " leave the service stopped for them"
                ),
            ]
        )
    )
    return 0


def run_back(settings: Settings) -> int:
    """`reo cutover back`: removes the DENY, at every source candidate. Exit code 0, or that of the
    first candidate where it was not possible.
    """
    refusals: list[ReoError] = []
    for source in settings.sources:
        try:
            print(_remove_denial(settings.select_source(source)))
        except ReoError as refusal:
            print(f"reo cutover: {refusal}", file=sys.stderr)
            refusals.append(refusal)
    return refusals[0].exit_code if refusals else 0


def _remove_denial(settings: Settings) -> str:
    """At the only source of these settings; returns what was done."""
    client = create_admin_client(settings.source_cluster, settings)
    names = sorted(
        {
            route.source_topic
            for route in topics.list_routes(settings, client, settings.connect_timeout_s)
        }
    )
    denial = WriteDenial(settings.source_cluster, client)
    denied = denial.find_denied(names)
    denial.remove(denied)
    done = (
        f"producers may write to {', '.join(denied)} at the source again"
        if denied
        else f"writes are not denied: {', '.join(names)}. Producers may write there:"
        " there is nothing to remove"
    )
    return f"{settings.source_cluster.bootstrap_servers}: {done}"


def _prepare(
    settings: Settings, commands: Sequence[needed_acls.Command], deny_writes: bool
) -> Settings:
    destination_kind.refuse_command(
        settings, "reo cutover", "consumers of a table are not consumer groups"
    )
    if deny_writes and len(settings.sources) > 1:
        raise MoveRefused(
            "--deny-writes denies writes at one cluster, and source.bootstrap_servers names"
            f" {len(settings.sources)}: producers could go on at another one. Give the cluster to"
            " which they write alone, with source.mode=single"
        )
    settings = source_candidates.select_answering(settings)
    permissions.check_permissions(settings, *commands)
    return settings
