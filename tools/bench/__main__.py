"""`make bench`: reo and MirrorMaker 2 in turn on the same two brokers, then reo's own limits; each
figure is written to a file at once.

    python -m tools.bench [--rounds 4] [--scale 1.0] [--only 'throughput|latency|…']
        [--out RESULTS.jsonl]

Each kind of record begins with a copy of each contender that is not counted: the first copies on
new brokers cost them up to twice as much, whoever makes them (their JVMs compile). In half of the
rounds reo is first, because the second one finds a warm page cache.

`bench.report` writes the page. Compare figures of one run only: the machine is shared. `--scale`
shortens all measurements; the page reports it.
"""

from __future__ import annotations

import argparse
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from tools.bench import latency, stage_limits
from tools.bench.contenders import Contender, MirrorMakerContender, Reo
from tools.bench.interruptions import measure_interruptions
from tools.bench.load import KINDS, fill
from tools.bench.machine import describe_machine
from tools.bench.partitions import measure_partitions
from tools.bench.testbed import Testbed, start_testbed
from tools.bench.throughput import measure_copy

PARTITIONS = 4
DEFAULT_KIND = "100 B"
RECORDS = {DEFAULT_KIND: 5_000_000, "1 kB": 1_000_000, "JSON, lz4": 2_000_000}
GROWTH_RECORDS = 2_000_000
LIMITS_RECORDS = 3_000_000
RATES = (450, 20_000)
LATENCY_S = 40
MANY_PARTITIONS = (64, 500, 2000)
CATCH_UP_RATE, CATCH_UP_STOP_S = 20_000, 60
OWN_ROUNDS = 3
"""Of what is measured of reo alone, at most."""
Figures = dict[str, Any]
console = Console(width=150)


def measure_row(testbed: Testbed, contender: Contender, records: int, *topics: str) -> Figures:
    """One copy's figures for the file."""
    return measure_copy(testbed, contender, topics, records).to_row()


@dataclass
class Bench:
    """What is measured, where, and how often."""

    testbed: Testbed
    rounds: int
    scale: float
    only: re.Pattern[str]
    out: Path
    filled_topics: set[str] = field(default_factory=set)

    def measure(self, section: str, who: str, number: int, figures: Callable[[], Figures]) -> None:
        """Measure and write the row; a failure is written with its reason, and the other
        measurements continue.
        """
        try:
            row = figures()
        except Exception as error:
            traceback.print_exc()
            row = {"failed": f"{type(error).__name__}: {error}"[:500]}
        row = {"section": section, "who": who, "round": number} | row
        with self.out.open("ab") as out:
            out.write(orjson.dumps(row) + b"\n")
        figures_text = {
            name: round(figure, 2) if isinstance(figure, float) else figure
            for name, figure in row.items()
            if not isinstance(figure, dict)
        }
        console.print(" ".join(f"{name}={value}" for name, value in figures_text.items()))

    @property
    def own_rounds(self) -> int:
        """The rounds of what is measured of reo alone."""
        return min(self.rounds, OWN_ROUNDS)

    def count(self, records: int) -> int:
        """The number of records, multiplied by the scale."""
        return int(records * self.scale)

    def seconds(self, seconds: int) -> int:
        """The seconds, multiplied by the scale; at least 15."""
        return max(15, int(seconds * self.scale))

    def topic(self, kind: str, records: int, partitions: int = PARTITIONS, which: str = "") -> str:
        """A filled topic at the source; filled once."""
        name = re.sub(r"\W+", "-", f"load-{kind}-{partitions}-{records}{which}")
        if name not in self.filled_topics:
            self.testbed.source.create_topic(name, partitions)
            fill(self.testbed.source.address, name, KINDS[kind], records, partitions)
            self.filled_topics.add(name)
        return name

    def contenders(
        self, number: int, label: str, filled: str = ""
    ) -> Iterator[tuple[Contender, str]]:
        """Both with an empty destination and the topic that they copy: `filled`, or a new one each.
        The first one alternates with the round.
        """
        makers: list[type[Reo | MirrorMakerContender]] = [Reo, MirrorMakerContender]
        for maker in makers if number % 2 == 0 else makers[::-1]:
            topic = filled or re.sub(r"\W+", "-", f"{label}-{number}-{maker.name}")
            if not filled:
                self.testbed.source.create_topic(topic, PARTITIONS)
            self.testbed.delete_topics()
            yield maker(self.testbed, topic, re.sub(r"\W+", "-", f"{label}-{number}")), topic

    def throughput(self) -> None:
        """Each kind of record, reo and MirrorMaker 2 in turn, on brokers that are warm."""
        kinds = [kind for kind in RECORDS if self.only.search(f"throughput, {kind}")]
        for kind in kinds:
            self._copy_in_turn(f"warm-up, {kind}", kind, 1)
            self._copy_in_turn(f"throughput, {kind}", kind, self.rounds)
        if not kinds and not re.search("partitions|interruptions", self.only.pattern):
            self._copy_in_turn(f"warm-up, {DEFAULT_KIND}", DEFAULT_KIND, 1)

    def _copy_in_turn(self, section: str, kind: str, rounds: int) -> None:
        records = self.count(RECORDS[kind])
        filled = self.topic(kind, records)
        for number in range(rounds):
            for contender, topic in self.contenders(number, section, filled):
                self.measure(
                    section,
                    contender.name,
                    number,
                    partial(measure_row, self.testbed, contender, records, topic),
                )

    def latency(self) -> None:
        """At a low and at a high rate, reo and MirrorMaker 2 in turn."""
        for rate in RATES:
            section, load = f"latency at {rate:,} records/s", (rate, self.seconds(LATENCY_S))
            for number in range(self.rounds if self.only.search(section) else 0):
                for contender, topic in self.contenders(number, section):
                    self._measure_load(
                        latency.measure_latency, section, contender, number, topic, load
                    )

    def hops(self) -> None:
        """The latency of each hop of reo."""
        for rate in RATES:
            section, load = f"hops at {rate:,} records/s", (rate, self.seconds(LATENCY_S))
            for number in range(self.own_rounds if self.only.search(section) else 0):
                topic = f"hops-{rate}-{number}"
                self.testbed.source.create_topic(topic, PARTITIONS)
                self.testbed.delete_topics()
                contender = Reo(self.testbed, topic, topic)
                self._measure_load(latency.measure_hops, section, contender, number, topic, load)

    def _measure_load(
        self,
        measure: Callable[[Testbed, Contender, str, int, int, int], Figures],
        section: str,
        contender: Contender,
        number: int,
        topic: str,
        load: tuple[int, int],
    ) -> None:
        """`load` is the rate, and the seconds of the measurement."""
        self.measure(
            section,
            contender.name,
            number,
            lambda: measure(self.testbed, contender, topic, *load, PARTITIONS),
        )

    def catch_up(self) -> None:
        """After a stop of a minute, reo and MirrorMaker 2 in turn."""
        load = (CATCH_UP_RATE, self.seconds(CATCH_UP_STOP_S))
        section = f"catching up after {load[1]} s at {CATCH_UP_RATE:,} records/s"
        for number in range(self.rounds if self.only.search(section) else 0):
            for contender, topic in self.contenders(number, section):
                self._measure_load(
                    latency.measure_catch_up, section, contender, number, topic, load
                )

    def growth(self) -> None:
        """How cost per record grows with partitions, with topics and with workers."""
        for number in range(self.own_rounds):
            self._grow(number, self.count(GROWTH_RECORDS))

    def _grow(self, number: int, records: int) -> None:
        for partitions in (1, 4, 16, 64):
            if self.only.search(section := f"growth: {partitions} partitions"):
                topics = [self.topic(DEFAULT_KIND, records, partitions)]
                self._measure_reo(section, number, topics, records)
        for count in (1, 16):
            if self.only.search(section := f"growth: {count} topics"):
                topics = [
                    self.topic(DEFAULT_KIND, records // count, PARTITIONS, f"-{topic}")
                    for topic in range(count)
                ]
                self._measure_reo(section, number, topics, records)
        for workers in (1, 2, 3):
            if self.only.search(section := f"growth: {workers} workers"):
                self._measure_reo(
                    section,
                    number,
                    [self.topic(DEFAULT_KIND, records)],
                    records,
                    REO_DEDUPLICATOR_WORKERS=str(workers),
                )

    def _measure_reo(
        self, section: str, number: int, topics: list[str], records: int, **settings: str
    ) -> None:
        self.testbed.delete_topics()
        label = re.sub(r"\W+", "-", f"{section}-{number}")
        contender = Reo(self.testbed, ",".join(topics), label, **settings)
        self.measure(
            section,
            "reo",
            number,
            partial(
                measure_row, self.testbed, contender, records // len(topics) * len(topics), *topics
            ),
        )

    def partitions(self) -> None:
        """Memory, threads and idle processor time by the number of partitions, once each."""
        for count in MANY_PARTITIONS:
            if self.only.search(section := f"partitions: {count:,}"):
                self.measure(
                    section,
                    "reo",
                    0,
                    partial(measure_partitions, self.testbed, count),
                )

    def interruptions(self) -> None:
        """How long the other topics wait when the plan of the service changes."""
        for number in range(self.own_rounds if self.only.search("interruptions") else 0):
            self.testbed.delete_topics()
            self.measure(
                "interruptions",
                "reo",
                number,
                partial(measure_interruptions, self.testbed, f"changed-{number}"),
            )

    def limits(self) -> None:
        """Each stage alone; `reo verify` of what they have copied; a bare loop."""
        if not self.only.search("limits"):
            return
        records = self.count(LIMITS_RECORDS)
        topic = self.topic(DEFAULT_KIND, records)
        for number in range(self.own_rounds):
            verify = partial(stage_limits.measure_verify, partitions=PARTITIONS)
            for name, work in (  # each reads what the one before it has written
                ("stage one alone", stage_limits.measure_stage_one),
                ("stage two alone", stage_limits.measure_stage_two),
                ("reo verify", verify),
            ):
                self.measure(
                    f"limits: {name}",
                    "reo",
                    number,
                    partial(work, self.testbed, topic, f"alone-{number}", records=records),
                )
            self.measure(
                "limits: bare loop",
                "confluent-kafka",
                number,
                partial(stage_limits.measure_bare_loop, self.testbed, topic, records, PARTITIONS),
            )


def parse_rounds(text: str) -> int:
    """An even number: each contender is first as often as second."""
    rounds = int(text)
    if rounds < 2 or rounds % 2:
        raise argparse.ArgumentTypeError(f"an even number is expected, not {text}")
    return rounds


def main() -> None:
    """Measure everything that `--only` names."""
    arguments = argparse.ArgumentParser(prog="bench")
    arguments.add_argument(
        "--rounds", type=parse_rounds, default=4, help="even; in half of them reo is first"
    )
    arguments.add_argument("--scale", type=float, default=1.0)
    arguments.add_argument(
        "--only", default="", help="a regular expression over the names of sections"
    )
    arguments.add_argument("--out", type=Path, default=Path("bench-results.jsonl"))
    options = arguments.parse_args()
    options.out.write_bytes(orjson.dumps(describe_machine(options)) + b"\n")
    with start_testbed() as testbed:
        bench = Bench(testbed, options.rounds, options.scale, re.compile(options.only), options.out)
        for part in (
            bench.throughput,
            bench.latency,
            bench.hops,
            bench.catch_up,
            bench.limits,
            bench.growth,
            bench.partitions,
            bench.interruptions,
        ):
            part()


if __name__ == "__main__":
    main()
