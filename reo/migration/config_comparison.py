"""Which configurations of a destination or an intermediate topic differ from what its source topic
asks for, and why; what is already as it should be has no row.
"""

from __future__ import annotations

from dataclasses import dataclass

from common.kafka import copied_configs
from common.kafka.copied_configs import LIMIT, Entries


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference: its present value, its new value (None: it stays), and why."""

    topic: str
    what: str
    now: str
    then: str | None
    why: str

    def __str__(self) -> str:
        """As text for a person."""
        change = f"stays {self.now}" if self.then is None else f"{self.now} → {self.then}"
        return f"{self.topic}: {self.what}: {change} ({self.why})"


def is_lowered_limit(config: str, now: str, value: str) -> bool:
    """Whether this is max.message.bytes, and the new value is lower: it is never lowered."""
    return config == LIMIT and int(now) > int(value)


def keep_limit(name: str, now: str, value: str) -> Difference:
    """The row of max.message.bytes where it stays higher than at the source."""
    why = f"the source has {value} now; larger records may be there from before"
    return Difference(name, LIMIT, now, None, why)


def compare_destination(name: str, source: Entries, copy: Entries) -> list[Difference]:
    """Compare a destination topic with its source topic."""
    expected, refused, set_at_source = (
        copied_configs.build_destination_config(source, copy),
        copied_configs.list_not_copied(source, copy),
        copied_configs.list_own_configs(source),
    )
    differences = []
    for config, value in expected.items():
        now = str(copy[config].value)
        if is_lowered_limit(config, now, value):
            differences.append(keep_limit(name, now, value))
        elif now != value:
            differences.append(
                Difference(
                    name,
                    config,
                    now,
                    value,
                    copied_configs.NOT_TAKEN_OVER.get(config, "as the source topic"),
                )
            )
    differences += [
        Difference(
            name,
            config,
            str(copy[config].value) if config in copy else "unknown",
            None,
            f"the source topic has {set_at_source[config]}: {why}",
        )
        for config, why in refused.items()
        if config not in expected
    ]
    set_here_only = {
        config: value
        for config, value in copied_configs.list_own_configs(copy).items()
        if config not in expected and config not in set_at_source
    }
    return differences + [
        Difference(name, config, value, None, "set here only")
        for config, value in set_here_only.items()
    ]


def compare_intermediate(name: str, source: Entries, intermediate: Entries) -> list[Difference]:
    """Compare an intermediate topic with what reo creates."""
    differences = []
    for config, value in copied_configs.build_intermediate_config(source).items():
        now = str(intermediate[config].value)
        if (
            config != "message.timestamp.type"
            and now != value
            and not is_lowered_limit(config, now, value)
        ):
            differences.append(Difference(name, config, now, value, "as reo creates it"))
    return differences
