"""`python -m tools.bench.database [--records 3000000] [--rounds 3]`: stage two alone, from the
intermediate topic into a topic and into PostgreSQL, in turn.

Both on this machine, with records of 100 B. The server is Debian's as it comes (`make postgresql`);
it syncs its log to the disk at each commit.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from common.parent_death_signal import list_children
from tests.harness.postgresql import STORE, Server
from tools.bench.contenders import Reo
from tools.bench.intermediate_testbed import StageOneAlone, count_by_envelopes
from tools.bench.load import KINDS, fill
from tools.bench.processes import Usage, usage_of
from tools.bench.testbed import Testbed, start_testbed
from tools.bench.throughput import measure_copy

PARTITIONS = 4
TOPIC = "load"


@dataclass
class PostgresqlTestbed(Testbed):
    """The same brokers; what arrives is rows."""

    server: Server

    def __post_init__(self) -> None:
        self.session = self.server.session()
        """Kept, since entering costs more than the question."""

    # nobody sees anything else
    def count_arrived(self, *topics: str, committed_only: bool = False) -> int:  # noqa: ARG002
        """The greatest source offsets: the source has no gaps."""
        row = self.session.execute(
            "SELECT coalesce(sum((SELECT max(source_offset) + 1 FROM load WHERE partition = p)), 0)"
            " FROM generate_series(0, %s) p",
            [PARTITIONS - 1],
        ).fetchone()
        return int(row[0]) if row else 0

    def broker_usage(self) -> dict[str, Usage]:
        """With the server's processes, of which a session is one."""
        assert self.server.process is not None
        pid = self.server.process.pid
        return super().broker_usage() | {"PostgreSQL": usage_of([pid, *list_children(pid)])}


def measure_stage_two(
    testbed: Testbed, label: str, records: int, to_tables: PostgresqlTestbed | None = None
) -> dict[str, Any]:
    """The intermediate topic filled by stage one, then read by stage two."""
    testbed.delete_topics()
    settings = (
        {
            "REO_DESTINATION_CLASS": STORE,
            "REO_DESTINATION_CONNECTION": to_tables.server.connection(),
        }
        if to_tables
        else {}
    )
    measure_copy(
        count_by_envelopes(testbed),
        StageOneAlone(testbed, TOPIC, label, **settings),
        [f"{TOPIC}-proxy"],
        records,
    )
    stage_two = Reo(testbed, TOPIC, label, "deduplicator", **settings)
    return measure_copy(to_tables or testbed, stage_two, [TOPIC], records).to_row()


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(prog="bench.database")
    arguments.add_argument("--records", type=int, default=3_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    console = Console(width=150)
    server = Server()
    try:
        server.make().start()
        with start_testbed() as testbed:
            testbed.source.create_topic(TOPIC, PARTITIONS)
            fill(testbed.source.address, TOPIC, KINDS["100 B"], options.records, PARTITIONS)
            tables = PostgresqlTestbed(
                testbed.folder, testbed.source, testbed.destination, testbed.admin, server
            )
            for number in range(options.rounds):
                for name, to_tables in (("topic", None), ("PostgreSQL", tables)):
                    server.ask(f'DROP TABLE IF EXISTS "{TOPIC}", reo_frontier')
                    row = measure_stage_two(testbed, f"{name}-{number}", options.records, to_tables)
                    console.print(
                        name,
                        {
                            figure: round(value, 2)
                            for figure, value in row.items()
                            if isinstance(value, float)
                        },
                        row["cpu_us"],
                    )
    finally:
        server.end()


if __name__ == "__main__":
    main()
