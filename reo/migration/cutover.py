"""`reo cutover`: topics move from the source to the destination, with their consumer groups. No
record is lost, and none is processed twice.

The steps, and when each is done:

    1  producers stop; with `--deny-writes`  the ends stand still for `--quiet` seconds, and no
       the copy is compared first, then    transaction is open; the DENY is still there
       an ACL denies them to write
    2  the copy reaches the source's end   no visible record of the source is after the frontier
    3  the copy is compared                `reo verify`; with `--resume` from where an earlier one
                                           ended
    4  consumers stop at the source        no member of a group has a partition of the topics
    5  the service stops, or is restarted  no member of its group has their intermediate partitions
       without these topics
    6  the groups' offsets are translated  all of them, or none (`reo.migration.group_translator`)
       and committed
    7  the move is recorded                the frontiers have it (`reo.migration.move_record`)

Each run reads the state from the clusters again. So a run can be interrupted, or killed, at any
step: the next run finds what is done, and does the rest. The command cannot stop the service: it
says when to, waits, and checks again at the end; and a service that is started later ends at once,
because it finds the record. Until step 7 has ended nothing has moved: `reo cutover back` removes
the DENY, and everything goes on at the source.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence

from common import clock
from common.errors import CopyDiffers, GroupBusy, MoveRefused, NothingCompared
from common.kafka import needed_acls
from common.routes import TopicPartition, name_some
from common.settings import Settings
from reo import interrupt
from reo.compare.resume_file import ResumeFile
from reo.migration import cutover_plan
from reo.migration.cutover_plan import prepare_steps
from reo.migration.group_translator import GroupTranslator
from reo.migration.move_record import MoveRecord
from reo.migration.moving_topics import Ends, MovingGroup, MovingTopics, prepare_settings
from reo.migration.partition_translator import TranslatedPartition
from reo.migration.user_group import UserGroup
from reo.progress.progress_snapshot import Snapshot
from reo.report import format_table, join_names, print_json
from reo.verify import Verification

POLL_S = 0.5
PERMISSIONS: tuple[needed_acls.Command, ...] = (
    "lag",
    "verify",
    "offsets translate --apply",
    "recover --apply",
)


class Cutover:
    """One run. `report` is called with a line for each completed step and for each wait."""

    def __init__(
        self,
        settings: Settings,
        groups: str,
        quiet_s: float,
        resume: str | None,
        report: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self.moving = MovingTopics(settings, groups)
        self.quiet_s = quiet_s
        self.resume_file = ResumeFile(resume)
        self.report = report
        self.compared = 0
        self._reported = ""

    def run(self, deny_writes: bool) -> dict[str, list[TranslatedPartition]]:
        """All steps; returns the committed rows by group."""
        started = self.moving.take_snapshot()
        names = sorted({row.source.topic for row in started.partitions})
        self.moving.write_denial.look_up(names)
        prepare_steps(self.settings, started.sources, self.resume_file)
        self.resume_file.check_writable()
        record = MoveRecord(self.settings, started.sources)
        ends = self.moving.read_ends()
        left_out = self.moving.find_left_out(ends, self.moving.find_groups(ends))
        if left_out:
            self.report(f"0 left out by --groups: {join_names(group.name for group in left_out)}")
        if deny_writes:
            self.moving.write_denial.check_is_possible()
            self.verify(started)
            self.moving.write_denial.add(names)
            self.report(
                f"1 writes denied: nobody may write to {join_names(names)} at the source (`reo"
                " cutover back` removes the DENY)"
            )
        while True:
            ends = self.wait_for_producers()
            snapshot = self.wait_for_copy(ends)
            if snapshot is not None and self.is_equal(ends):
                break
        groups = self.wait_for_consumers(ends)
        self.wait_for_service(snapshot)
        self.check_ends(ends)
        rows = translate_groups(self.settings, groups, self.report)
        self.check_ends(ends)
        self.check_groups(ends, rows)
        self.check_service_stopped(snapshot)
        self.moving.write_denial.check()
        record.write(ends)
        # one that has started in between has not seen the record
        self.check_service_stopped(snapshot)
        return rows

    def wait_for_producers(self) -> Ends:
        """Step 1: the ends, when they have not moved for `quiet_s` and no transaction is open."""
        ends, quiet_since_s = self.moving.read_ends(), clock.monotonic()
        while True:
            self._pause()
            current_ends = self.moving.read_ends()
            if current_ends != ends:
                names = {tp.topic for tp in current_ends if current_ends[tp] != ends.get(tp)}
                ends, quiet_since_s = current_ends, clock.monotonic()
                why = (
                    " although writes are denied: by a super user (super.users), whom no ACL stops,"
                    " or by the end of a transaction"
                )
                self._wait_for(
                    "1 waiting for the producers to stop: records are written to"
                    f" {join_names(names)}{why if self.moving.write_denial.is_broken else ''}"
                )
            elif open_partitions := self.moving.find_open(ends):
                quiet_since_s = clock.monotonic()
                self._wait_for(
                    "1 waiting for open transactions at the source to end:"
                    f" {join_names(open_partitions)}"
                )
            elif clock.monotonic() > quiet_since_s + self.quiet_s:
                self.report(
                    f"1 no record was written for {self.quiet_s:g} s, and no transaction is open:"
                    f" {join_names({tp.topic for tp in ends})}"
                )
                return ends

    def wait_for_copy(self, ends: Ends) -> Snapshot | None:
        """Step 2: the snapshot in which everything up to the ends is copied; None when the source
        grows meanwhile.
        """
        while True:
            snapshot = self.moving.take_snapshot()
            if written := self.moving.find_written(ends):
                self._report_written(2, written)
                return None
            records_left = sum(row.lags.both.records for row in snapshot.partitions)
            if not records_left and all(row.frontier is not None for row in snapshot.partitions):
                self.report("2 the copy has reached the source's end")
                return snapshot
            if self.moving.is_copying(snapshot):
                self._wait_for("2 waiting for the copy to reach the source's end")
            else:
                self._wait_for(
                    f"2 waiting for the service: it does not run, and {records_left} records are"
                    " not copied. Start it"
                )
            self._pause()

    def verify(self, copied: Snapshot | None = None) -> None:
        """Step 3: CopyDiffers and similar errors unless both sides are equal; topics without
        records are. Or, before writes are denied, what is copied by then.
        """
        ends = {row.source: row.stage_two_offset for row in copied.partitions} if copied else None
        verification = Verification(self.settings, self.resume_file, ends)
        for reason in verification.not_comparable:
            raise reason
        if copied and any(pair.is_compacted for pair in verification.pairs):
            self.report("1 a compacted topic is compared when nobody writes to it, not before")
            return
        results = verification.run()
        verdict = verification.reach_verdict(results)
        if verdict.exit_code not in (0, NothingCompared.exit_code):
            raise CopyDiffers(name_some([result for result in results if result.difference]))
        self.compared = verdict.records
        what = "1 before writes are denied: what is copied" if copied else "3 the copy"
        self.report(
            f"{what} equals the source: {verdict.records - verdict.compared_before} records"
            f" compared in {verdict.took_s:.1f} s, {verdict.compared_before} before"
        )

    def is_equal(self, ends: Ends) -> bool:
        """Step 3, or False when the source grows meanwhile."""
        try:
            self.verify()
        except CopyDiffers:
            written = self.moving.find_written(ends)
            if not written:
                raise
            self._report_written(3, written)
            return False
        return True

    def wait_for_consumers(self, ends: Ends) -> list[MovingGroup]:
        """Step 4: the groups, when none reads the topics at the source."""
        groups = self.moving.find_groups(ends)
        while reading := [group for group in groups if not group.has_stopped]:
            readers = join_names(f"{group.name} ({group.describe_readers()})" for group in reading)
            self._wait_for(f"4 waiting for the consumers at the source to stop: {readers}")
            self._pause()
            groups = self.moving.find_groups(ends)
        names = join_names(group.name for group in groups) or "there is none"
        self.report(f"4 no group reads at the source: {names}")
        return groups

    def wait_for_service(self, snapshot: Snapshot) -> None:
        """Step 5."""
        while self.moving.is_copying(snapshot):
            members = self.moving.snapshot_reader.group.describe_members().partitions
            self._wait_for(
                f"5 waiting for the service to stop ({join_names(members)}): stop it now, or start"
                " it again without these topics"
            )
            self._pause()
        self.report("5 the service does not copy these topics any more")

    def check_ends(self, ends: Ends) -> None:
        """MoveRefused when somebody has written since step 1."""
        if written := self.moving.find_written(ends):
            raise MoveRefused(
                f"records were written to {join_names(written)} at the source after its producers"
                " had stopped. Nothing is lost: they are at the source. Start the service if it is"
                " stopped, stop the producers (or use --deny-writes), then run the command again"
                " before anything starts at the destination"
            )

    def check_groups(self, ends: Ends, rows: Mapping[str, Sequence[TranslatedPartition]]) -> None:
        """GroupBusy when a group has read at the source since its offsets were translated."""
        for group in self.moving.find_groups(ends):
            translated = {
                row.source: row.source_offset
                for row in rows.get(group.name, ())
                if row.source_offset is not None
            }
            current = UserGroup(self.moving.source_coordinator, group.name).fetch_offsets(ends)
            if not group.has_stopped or current != translated:
                raise GroupBusy(
                    f"group {group.name} has read at the source after its consumers had stopped."
                    " Stop them there, and run the command again before they start at the"
                    " destination"
                )

    def check_service_stopped(self, snapshot: Snapshot) -> None:
        """MoveRefused when it was started again since step 5."""
        if self.moving.is_copying(snapshot):
            raise MoveRefused(
                "the service was started again, before the topics had moved: stop it, and run the"
                " command again"
            )

    def _report_written(self, step: int, written: Collection[TopicPartition]) -> None:
        self.report(
            f"{step} records were written to {join_names(written)} after the producers had"
            " stopped: step 1 begins again"
        )

    def _pause(self) -> None:
        clock.sleep(POLL_S)
        self.moving.write_denial.check()

    def _wait_for(self, what: str) -> None:
        """Report what is waited for, once."""
        if what != self._reported:
            self._reported = what
            self.report(what)


def translate_groups(
    settings: Settings, groups: Sequence[MovingGroup], report: Callable[[str], None]
) -> dict[str, list[TranslatedPartition]]:
    """Every group is translated, then all are committed; the rows by group. A typed error, and
    nothing is committed, when one cannot be translated or is active at the destination.
    """
    translator = GroupTranslator(settings)
    rows = {group.name: translator.translate(group.name) for group in groups}
    for group in groups:
        for row in rows[group.name]:
            if row.refusal:
                raise type(row.refusal)(
                    f"group {group.name}: {row.refusal}. To move without this group, give the"
                    " others with --groups"
                )
        if group.is_active_at_destination and any(row.moves for row in rows[group.name]):
            raise GroupBusy(
                f"group {group.name} has members at the destination, and has not read there"
                " what it has read at the source: stop its consumers there, run the command"
                " again, then start them"
            )
    for name, translated in rows.items():
        if any(row.moves for row in translated):
            translator.commit(name, translated)
        if all(row.source_offset is None for row in translated):
            report(
                f"6 group {name} has no offset at the source: nothing says where it continues,"
                " and at the destination it begins where its auto.offset.reset says"
            )
        for row in translated:
            if row.offsets_ahead:
                report(
                    f"6 group {name} on {row.destination}: stays at {row.committed_offset},"
                    f" {row.offsets_ahead} offsets further than at the source"
                )
    report(f"6 the offsets are translated and committed at the destination; groups: {len(rows)}")
    return rows


def run_command(
    settings: Settings,
    groups: str,
    quiet_s: float,
    resume: str | None,
    deny_writes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """`reo cutover run`: progress on standard error, the result on standard output."""
    if dry_run:
        return cutover_plan.run_command(settings, groups, quiet_s, resume, as_json, deny_writes)
    settings = prepare_settings(settings, PERMISSIONS, deny_writes)
    cutover = Cutover(
        settings, groups, quiet_s, resume, lambda line: print(line, file=sys.stderr, flush=True)
    )
    if cutover.moving.report_moved(as_json):
        return 0
    denial = cutover.moving.write_denial
    interrupt.set_last_words(lambda: denial.describe() if deny_writes or denial.denied else "")
    rows = cutover.run(deny_writes)
    if as_json:
        moved = [
            {"group": name, "partitions": [row.to_dict() for row in translated]}
            for name, translated in rows.items()
        ]
        print_json({"records_compared": cutover.compared, "groups": moved})
        return 0
    cells = [
        (name, row.source, row.source_offset, row.destination, row.continues_at)
        for name, translated in rows.items()
        for row in translated
    ]
    print(format_table("group|source|offset|destination|offset", cells))
    print(
        "the topics have moved: start producers and consumers at the destination, and leave the"
        " service stopped for them"
    )
    return 0
