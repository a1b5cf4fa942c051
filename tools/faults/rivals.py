"""The same faults for MirrorMaker 2 with exactly-once: `python -m tools.faults.rivals`
(--only, --runs, --out).

Every story has brokers of its own, so no internal topic, transaction or defect of one story affects
the next. The judge compares the copy with:

    load stories     the source at the end of the load
    truncated        all records that were ever written, also those that were deleted before they
                     were copied
    recreated        the old topic's records and then the new topic's: all records that a consumer
                     must receive

In the last two no replicator can know what its user wants; a good one reports the problem and
stops. So the log is beside the verdict. MirrorMaker 2 runs with the settings of `bench.mirrormaker`
only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka import TopicPartition
from rich.console import Console
from rich.table import Table

from tests.harness.judge import Partitions
from tests.harness.kafka import Clusters, make_records
from tools.bench import mirrormaker
from tools.bench.mirrormaker import MirrorMaker
from tools.faults.load import Load
from tools.faults.rival_run import MirrorMakerRun, Outcome, judge_run, summarise_log
from tools.faults.testbed import start_clusters as own_clusters

PARTITIONS = 4
RECORDS = 20_000
TIMES = 2
Inject = Callable[[MirrorMakerRun], Partitions]
"""Injects the fault and returns the records that the copy is compared with."""


def kill_mirrormaker(scene: MirrorMakerRun) -> Partitions:
    """SIGKILL MirrorMaker under load and restart it at once, twice."""
    with scene.load:
        scene.start()
        for _ in range(TIMES):
            scene.wait_for_progress()
            scene.kill()
            scene.start()
        scene.wait_for_progress()
    return _read_source_after_load(scene)


def kill_broker(scene: MirrorMakerRun, side: str) -> Partitions:
    """SIGKILL a single-node broker under load and restart it at once on its data, twice."""
    broker = getattr(scene.clusters, side).broker
    with scene.load:
        scene.start()
        for _ in range(TIMES):
            scene.wait_for_progress()
            assert broker.running
            broker.kill()
            scene.record_fault(f"SIGKILL of the {side}'s broker")
            broker.start().wait()
        scene.wait_for_progress()
    return _read_source_after_load(scene)


def _read_source_after_load(scene: MirrorMakerRun) -> Partitions:
    scene.last_action_s = time.monotonic()
    return scene.clusters.source.read(scene.topic)


def truncate_source(scene: MirrorMakerRun) -> Partitions:
    """While MirrorMaker is stopped, delete records that it has not copied, and keep later ones."""
    source = scene.clusters.source
    _copy_and_stop(scene)
    copied_ends = source.end_offsets(scene.topic)
    source.write(scene.topic, make_records(range(RECORDS, 2 * RECORDS), PARTITIONS))
    delete_before = [
        TopicPartition(scene.topic, partition, (copied_ends[partition] + end) // 2)
        for partition, end in source.end_offsets(scene.topic).items()
    ]
    everything = source.read(scene.topic)
    for future in source.admin.delete_records(delete_before).values():
        future.result()
    assert all(
        begin > copied_ends[partition]
        for partition, begin in source.beginning_offsets(scene.topic).items()
    ), "all deleted records were copied"
    scene.record_fault("source truncated past the position")
    scene.start()
    return everything


def recreate_source(scene: MirrorMakerRun, share: float) -> Partitions:
    """While MirrorMaker is stopped, delete and recreate the source topic, with `share` times as
    many records, all of them new.
    """
    source = scene.clusters.source
    _copy_and_stop(scene)
    old = source.read(scene.topic)
    before = source.topic_id(scene.topic)
    source.delete(scene.topic)
    source.create(scene.topic, PARTITIONS)
    assert source.topic_id(scene.topic) != before
    source.write(scene.topic, make_records(range(10**6, 10**6 + int(RECORDS * share)), PARTITIONS))
    scene.record_fault("source deleted and recreated")
    scene.start()
    new = source.read(scene.topic)
    return {partition: old[partition] + new[partition] for partition in old}


def _copy_and_stop(scene: MirrorMakerRun) -> None:
    """A first exact copy and a clean stop; in two parts, so that the log lines of a restart are
    known.
    """
    for part in (range(RECORDS // 2), range(RECORDS // 2, RECORDS)):
        scene.clusters.source.write(scene.topic, make_records(part, PARTITIONS))
        scene.start()
        scene.wait_for_progress(1)
        scene.clusters.wait_for_copy(scene.topic, part.stop)
        scene.mirrormaker.stop()


STORIES: dict[str, Inject] = {
    "MirrorMaker SIGKILL": kill_mirrormaker,
    "broker SIGKILL, destination": partial(kill_broker, side="destination"),
    "broker SIGKILL, source": partial(kill_broker, side="source"),
    "source truncated, stopped": truncate_source,
    "source recreated shorter, stopped": partial(recreate_source, share=0.3),
    "source recreated longer, stopped": partial(recreate_source, share=1.5),
}


def run_story(story: str, run: int, folder: Path) -> Outcome:
    """Run one story on new brokers and judge the copy; an AssertionError of the story is its
    verdict.
    """
    topic = f"rival-{run}"
    with own_clusters(folder, "own") as clusters:
        clusters.source.create(topic, PARTITIONS)
        rival = MirrorMaker(
            folder / "mirrormaker", clusters.source.address, clusters.destination.address, topic
        )
        scene = MirrorMakerRun(clusters, topic, rival, Load(clusters.source, topic, PARTITIONS))
        try:
            return _build_outcome(story, run, scene, *_run_and_judge(story, scene, clusters))
        finally:
            rival.kill()


def _run_and_judge(
    story: str, scene: MirrorMakerRun, clusters: Clusters
) -> tuple[Partitions, str, float | None]:
    try:
        reference = STORIES[story](scene)
    # MirrorMaker stopped in the middle: the load has ended, and the judge reports what is missing
    except AssertionError as failure:
        reference = clusters.source.read(scene.topic)
        verdict, complete_s = judge_run(scene, reference)
        return reference, f"in the story: {failure}; then: {verdict}", complete_s
    return reference, *judge_run(scene, reference)


def _build_outcome(
    story: str,
    run: int,
    scene: MirrorMakerRun,
    reference: Partitions,
    verdict: str,
    complete_s: float | None,
) -> Outcome:
    log_summary, lines = summarise_log(scene)
    assert scene.hits, "no fault happened: the run proves nothing"
    return Outcome(
        story,
        run,
        dict(scene.hits),
        verdict,
        log_summary,
        sum(map(len, reference.values())),
        complete_s and round(complete_s - scene.last_action_s, 1),
        complete_s and round(complete_s - scene.fault_s, 1),
        lines,
        scene.load.aborted,
    )


def build_table(outcomes: list[Outcome]) -> Table:
    """The table."""
    table = Table(title="MirrorMaker 2, exactly-once, Kafka 4.3.1", show_lines=True)
    for name in (
        "story",
        "harm",
        "records",
        "verdict",
        "what its log said of it",
        "complete after",
        "since the harm",
    ):
        table.add_column(
            name,
            justify="right" if name in ("records", "complete after", "since the harm") else "left",
        )
    for outcome in outcomes:
        harm = ", ".join(f"{count} × {what}" for what, count in outcome.hits.items())
        times = (
            "never" if seconds is None else f"{seconds} s"
            for seconds in (outcome.seconds, outcome.since_harm_s)
        )
        table.add_row(
            outcome.story, harm, f"{outcome.records:,}", outcome.verdict, outcome.said, *times
        )
    return table


def main() -> int:
    """Run the stories; returns 2 when MirrorMaker is not installed, 1 when a story itself failed;
    the verdicts are results, not failures.
    """
    arguments = argparse.ArgumentParser(prog="python -m tools.faults.rivals")
    arguments.add_argument("--only", default="", help="part of the names of the stories")
    arguments.add_argument("--runs", type=int, default=1, help="how often each story runs")
    arguments.add_argument("--out", type=Path, help="write all results to this file, as JSON")
    arguments.add_argument(
        "--keep",
        type=Path,
        help=(
            "keep the logs and the brokers' data in this existing folder; otherwise they are"
            " deleted"
        ),
    )
    options = arguments.parse_args()
    if not mirrormaker.JARS.is_dir():
        print(mirrormaker.MISSING, file=sys.stderr)
        return 2
    outcomes: list[Outcome] = []
    failed_stories = 0
    with tempfile.TemporaryDirectory(prefix="reo-rivals-") as temporary:
        run_folder = Path(tempfile.mkdtemp(dir=options.keep or temporary))
        for run in range(1, options.runs + 1):
            for number, story in enumerate(
                name for name in STORIES if options.only.lower() in name.lower()
            ):
                try:
                    outcomes.append(run_story(story, run, run_folder / f"{run}-{number}"))
                except Exception as error:
                    failed_stories += 1
                    print(
                        f"{story}, run {run}: the story itself failed, this is no result:"
                        f" {type(error).__name__}: {error}",
                        file=sys.stderr,
                        flush=True,
                    )
                    continue
                print(
                    f"{story}, run {run}: {outcomes[-1].verdict}; it said {outcomes[-1].said};"
                    f" {outcomes[-1].seconds} s",
                    flush=True,
                )
                if options.out:
                    options.out.write_text(
                        json.dumps(
                            {
                                "rival": "MirrorMaker 2, Kafka 4.3.1, exactly-once",
                                "cores": os.cpu_count(),
                                "kernel": platform.release(),
                                "outcomes": [outcome.to_dict() for outcome in outcomes],
                            },
                            indent=1,
                        )
                        + "\n"
                    )
    Console(width=200).print(build_table(outcomes))
    return 1 if failed_stories else 0


if __name__ == "__main__":
    sys.exit(main())
