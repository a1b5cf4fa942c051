"""`make demo`: the main job, on this machine, with everything real, and a verdict that is earned.

Two brokers are started, the flights are written to one, the service copies them to the other while
its stages are killed again and again, and then the destination is compared with the source, record
by record. Exit code 0 only when the copy is exact and every planned kill happened. Whatever was
started is stopped, also on Ctrl-C.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from common import settings
from common.errors import ReoError
from reo.compare.resume_file import ResumeFile
from reo.verify import Verification
from tools.demo.broker import Broker
from tools.demo.fair_share import Limit
from tools.demo.flights import RECORDS, Loader
from tools.demo.killer import ZOMBIE, Killer
from tools.demo.service import Service

JARS = Path(__file__).parents[2] / "jars" / "broker"
TOPIC = "flights"
PARTITIONS = 4
PATIENCE_S = 180


class Demo:
    """One demonstration; `stack` undoes everything."""

    def __init__(self, seed: int, kills: int, stack: ExitStack, bars: Progress) -> None:
        self.seed, self.kills = seed, kills
        self.bars = bars
        self.folder = Path(tempfile.mkdtemp(prefix="reo-demo-"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.brokers = [Broker(self.folder / name, JARS) for name in ("source", "destination")]
        for broker in self.brokers:
            stack.callback(broker.kill)
        source, destination = (broker.address for broker in self.brokers)
        self.environment = {
            "REO_SOURCE_BOOTSTRAP_SERVERS": source,
            "REO_DESTINATION_BOOTSTRAP_SERVERS": destination,
            "REO_SOURCE_TOPIC": TOPIC,
            "REO_DEDUPLICATOR_SESSION_TIMEOUT_MS": "6000",
            "TMPDIR": str(self.folder),  # what a process that is killed leaves there goes with it
        }
        self.service = Service(self.environment, self.folder / "service.log")
        stack.callback(self.service.kill_all)
        self.seconds = 0.0
        self.over = threading.Event()

    def run(self) -> int:
        """Load, copy under kills, verify; returns the exit code."""
        for broker in self.brokers:
            broker.start()
        for broker in self.brokers:
            broker.wait()
        self.brokers[0].create_topic(TOPIC, PARTITIONS)
        loader = Loader(self.brokers[0].address, TOPIC)
        killer = Killer(
            self.seed,
            self.kills,
            RECORDS,
            self.service,
            self.brokers[1].address,
            {"replicator": f"{TOPIC}-proxy", "deduplicator": TOPIC},
            PARTITIONS,
        )
        with ThreadPoolExecutor(1) as pool:
            task = self.bars.add_task("loaded", total=RECORDS)
            loading = pool.submit(
                loader.load,
                lambda number: self.bars.advance(task, number),
                lambda loaded: not self.over.is_set() and killer.hold(loaded),
            )
            try:
                self._copy(killer, loading, loader.last)
            finally:
                self.over.set()  # however it ended, the load does not wait for another kill
                killer.end_zombie()
        counts = {
            reason: self.service.total("reo_records_dropped_total", reason=reason)
            for reason in ("duplicate", "stale", "gap")
        }
        code = self.service.stop()
        if code != 0:
            raise RuntimeError(f"the service ended with exit code {code}:\n{self._log()}")
        return self._verdict(killer, counts, loader)

    def _copy(self, killer: Killer, loading: Future[None], last: dict[int, int]) -> None:
        """Start the service, kill, wait until the frontier has reached the last visible record
        everywhere.
        """
        tasks = {
            "replicator": self.bars.add_task("stage one", total=RECORDS),
            "deduplicator": self.bars.add_task("stage two", total=RECORDS),
        }
        begun = time.monotonic()
        self.service.start()
        killer.work(
            lambda stage, written: self._show(tasks[stage], written), self.bars.console.print
        )
        self._wait(loading.done, lambda: self._show_all(tasks, killer))
        loading.result()
        self._wait(lambda: self._arrived(last), lambda: self._show_all(tasks, killer))
        self.seconds = time.monotonic() - begun

    def _show(self, task: TaskID, written: int) -> None:
        self.bars.update(task, completed=min(written, RECORDS))

    def _show_all(self, tasks: dict[str, TaskID], killer: Killer) -> None:
        for stage, task in tasks.items():
            self._show(task, killer.written(stage))

    def _arrived(self, last: dict[int, int]) -> bool:
        frontiers = self.service.frontiers()
        return all(frontiers.get(partition, -1) >= offset for partition, offset in last.items())

    def _wait(self, condition: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
        patience = Limit(PATIENCE_S)
        while not condition():
            if self.service.code is not None or patience.is_over():
                raise RuntimeError(
                    "the copy did not complete (exit code of the service:"
                    f" {self.service.code}):\n{self._log()}"
                )
            meanwhile()
            time.sleep(0.1)

    def _log(self) -> str:
        return self.service.log.read_text(errors="replace")[-4000:]

    def _verdict(self, killer: Killer, counts: dict[str, float], loader: Loader) -> int:
        task = self.bars.add_task("verified", total=RECORDS)
        results = Verification(settings.load(self.environment), ResumeFile(None)).run(
            lambda number: self.bars.advance(task, number)
        )
        self.bars.stop()
        equal = sum(result.equal for result in results)
        differences = [
            f"{result.tp}: {result.difference}" for result in results if result.difference
        ]
        exact = not differences and equal == RECORDS
        complete = len(killer.done) == 2 * self.kills
        stages = [kill.stage for kill in killer.done if kill.victim != ZOMBIE]
        table = Table(title=f"seed {self.seed}", show_header=False)
        for name, value in (
            ("records", f"{equal:,} (and {loader.aborted:,} aborted ones, which must not be seen)"),
            (
                "duplicates dropped",
                (
                    f"{counts['duplicate'] + counts['stale']:,.0f} ({counts['stale']:,.0f} of them"
                    " stale)"
                ),
            ),
            ("dropped after a gap", f"{counts['gap']:,.0f}"),
            (
                "kills",
                (
                    f"{stages.count('replicator')} of stage one, {stages.count('deduplicator')} of"
                    f" stage two, {len(killer.done) - len(stages)} zombie"
                ),
            ),
            ("seconds", f"{self.seconds:.1f}, kills and restarts included"),
            ("records/s", f"{equal / self.seconds:,.0f}, kills and restarts included"),
            ("verdict", "exact" if exact else "NOT EXACT"),
        ):
            table.add_row(name, value)
        self.bars.console.print(table)
        for line in differences:
            self.bars.console.print(line)
        if not complete:
            self.bars.console.print(
                f"{2 * self.kills - len(killer.done)} of the planned kills did not happen: the"
                " verdict says less than it should"
            )
        return 0 if exact and complete else 1


def main() -> int:
    """The command line; a seed is chosen when none is given."""
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument(
        "--seed",
        type=int,
        default=random.SystemRandom().randrange(1_000_000),
        help="decides when the stages are killed; printed at the end",
    )
    parser.add_argument(
        "--kills", type=int, default=2, help="how often each stage is killed (default 2)"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both ends unwind the stack
    console = Console()
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console.print(f"seed {options.seed} plans the kills; where they hit depends on the machine")
    with (
        ExitStack() as stack,
        Progress(*columns, console=console, disable=not console.is_terminal) as bars,
    ):
        try:
            return Demo(options.seed, options.kills, stack, bars).run()
        except KeyboardInterrupt:
            console.print("interrupted; everything that was started is being stopped")
            return 130
        except (RuntimeError, ReoError) as failed:
            print(failed, file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
