"""How many records a transaction may have: `deduplicator.transaction_records`, and fewer while
transactions take long.

A transaction has to be over before its timeout, or it is aborted and its records are sent again.
If the destination accepts them slowly, a full transaction takes too long, and so does the next,
with the same records: nothing would ever be committed. This happens with a slow network, and with a
quota of the brokers (`producer_byte_rate`), which delays a producer by as much as its last megabyte
exceeded the rate. So after a transaction that failed, or took a large part of its timeout, the
next one has half as many records; after several short ones in a row, the size grows again.
(Several, because a quota acts late: the broker accepts what is too much, and the next request has
to wait for it.)

The time before the transaction, perhaps with a user's function, is limited too: a round consumes no
more records after `consume_seconds_max`.
"""

from __future__ import annotations

LONG, SHORT = 1 / 4, 1 / 16
"""As shares of the timeout."""
IN_A_ROW = 8
CONSUME_MAX_S = 5.0
"""Decided records wait for the others of their round: not for long."""


class TransactionLimits:
    """`records`: how many records the next transaction may have, from 1 to `records_max`."""

    def __init__(self, records_max: int, timeout_s: float) -> None:
        self.records = self.records_max = records_max
        self.timeout_s = timeout_s
        self.consume_seconds_max = min(CONSUME_MAX_S, LONG * timeout_s)
        """For how long a round consumes records."""
        self.short = 0
        """How many transactions in a row were short."""

    def on_committed(self, records: int, seconds: float) -> None:
        """A transaction of so many records took so many seconds."""
        if seconds > LONG * self.timeout_s:
            self.on_failed(records)
            return
        self.short = self.short + 1 if seconds < SHORT * self.timeout_s else 0
        if self.short == IN_A_ROW:
            self.short = 0
            self.records = min(self.records_max, 2 * self.records)

    def on_failed(self, records: int) -> None:
        """A transaction of so many records was not committed."""
        self.short = 0
        self.records = max(1, min(self.records, records) // 2)
