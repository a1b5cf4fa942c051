"""`reo cutover plan` and `reo cutover run`, with what they print; the steps are in
`reo.migration.cutover`, the way back in `reo.migration.cutover_back`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import orjson

from common import source_candidates
from common.errors import MoveRefused
from common.kafka import needed_acls, permissions, topics
from common.settings import Settings, destination_kind
from reo import interrupt
from reo.compare.resume_file import ResumeFile
from reo.migration.cutover import Cutover
from reo.migration.cutover_plan import CutoverPlan, make_plan, prepare_steps
from reo.migration.moving_topics import MovingTopics
from reo.migration.translation_report import format_offset
from reo.output import align_columns

PLAN_INTERVAL_S = 3.0
PERMISSIONS: tuple[needed_acls.Command, ...] = (
    "lag",
    "verify",
    "offsets translate --apply",
    "recover --apply",
)


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
    moving = MovingTopics(settings, groups)
    if _report_moved(moving, as_json):
        return 0
    plan = _make_plan(moving, quiet_s, resume, deny_writes)
    print(plan.format_json() if as_json else plan.format_text())
    return 0


def _make_plan(
    moving: MovingTopics, quiet_s: float, resume: str | None, deny_writes: bool
) -> CutoverPlan:
    sources = topics.describe_sources(moving.settings, moving.source_admin)
    to_compare = prepare_steps(moving.settings, sources, ResumeFile(resume)).total_offsets
    if deny_writes:
        moving.write_denial.check_is_possible()
    denied = moving.write_denial.look_up(sorted({route.source_topic for route in sources}))
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
    if _report_moved(cutover.moving, as_json):
        return 0
    denial = cutover.moving.write_denial
    interrupt.set_last_words(lambda: denial.describe() if deny_writes or denial.denied else "")
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


def _report_moved(moving: MovingTopics, as_json: bool) -> bool:
    """Print when and where the topics have moved, and what the source has got since; False when
    they have not.
    """
    moved = [
        (row, row.frontier) for row in moving.find_moved(moving.take_snapshot()) if row.frontier
    ]
    if not moved:
        return False
    if as_json:
        print(
            orjson.dumps(
                {
                    "moved": [
                        {
                            "topic": row.source.topic,
                            "partition": row.source.partition,
                            "source_offset": frontier.source_offset + 1,
                            "source_end": row.source_end,
                            **(frontier.move._asdict() if frontier.move else {}),
                        }
                        for row, frontier in moved
                    ]
                }
            ).decode()
        )
        return True
    for row, frontier in moved:
        more = row.source_end - frontier.source_offset - 1
        print(
            f"{row.source} {frontier.describe_move()}"
            + (f"; the source has {more} offsets more since, which are not copied" if more else "")
        )
    print(
        "there is nothing left to move. A group that was left out: `reo offsets translate --apply`."
        " To go back: `reo cutover back`"
    )
    return True


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
