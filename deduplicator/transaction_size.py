"""How many records a transaction may have: fewer while they take long.

A transaction has to be over before its time-out, or it is aborted and its records are sent again. Where the destination takes them slowly, a full one
is too long, and so is the next, with the same records: nothing would ever be committed. It is so behind a thin line, and under a quota of the
brokers (`producer_byte_rate`), which holds a producer for as long as its last megabyte was too much. So a transaction that failed, or took a large
part of its time-out, is followed by one of half as many records; and several short ones in a row by longer ones again. (Several, because a quota strikes
late: what is too much is taken, and the next has to wait for it.)

What comes before the transaction, with a user's function perhaps, is bounded in time alone: no more is taken up once `consume_seconds_max` are over.
"""

from __future__ import annotations

LONG, SHORT = 1 / 4, 1 / 16
"""Of the time-out."""
IN_A_ROW = 8
TAKE_UP_S = 5.0
"""Records that are decided wait for the others of their round: not for long."""


class TransactionSize:
    """`records` is how many the next transaction may have: from 1 to `records_max`."""

    def __init__(self, records_max: int, timeout_s: float) -> None:
        self.records = self.records_max = records_max
        self.timeout_s = timeout_s
        self.consume_seconds_max = min(TAKE_UP_S, LONG * timeout_s)
        """For how long a round takes up records."""
        self.short = 0
        """How many were short, one after the other."""

    def on_committed(self, records: int, seconds: float) -> None:
        """A transaction of so many took so long."""
        if seconds > LONG * self.timeout_s:
            self.on_failed(records)
            return
        self.short = self.short + 1 if seconds < SHORT * self.timeout_s else 0
        if self.short == IN_A_ROW:
            self.short = 0
            self.records = min(self.records_max, 2 * self.records)

    def on_failed(self, records: int) -> None:
        """A transaction of so many was not committed."""
        self.short = 0
        self.records = max(1, min(self.records, records) // 2)
