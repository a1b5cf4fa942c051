r"""Rules: what the settings say of the topics to copy. `build_routes` makes routes of them, with
the topics that there are. No I/O.

    orders                a topic, to one of the same name
    orders=copy           to another one
    orders=copy:3         all of it to partition 3; after the colon stands a mapping
                          (`common.partition_mapping`); also orders=:key
    orders[0-499]         these partitions of it, to those of the same numbers: another service
                          copies the others (`common.partition_range`)
    ^logs-.*              a pattern begins with ^ and has to fit the whole name (Python's `re`);
                          names that begin with __ are Kafka's own
    ^logs-(.*)=copy-\1    the destination takes over a group of the pattern: every source has a
                          destination of its own
    ^logs-.*=all          otherwise all that the pattern fits share one

A destination that several sources can come to is shared. An intermediate topic is the destination's
name and `-proxy`, or, where the destination is shared, both names and `-proxy`; then the range, if
there is one: so its name depends on the rules alone, and not on which topics there are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from common import partition_mapping, partition_range
from common.partition_range import WHOLE, PartitionRange
from common.routes import SAME, Route

TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""What Kafka allows: org.apache.kafka.common.internals.Topic."""
LEGAL = "is not a legal topic name (letters, digits, dot, underscore, hyphen; at most 249)"
BETWEEN = re.compile(r",(?![^{}]*\})")
"""A comma, but for the one in a pattern's {1,3}."""
GROUP = re.compile(r"\\([1-9]|g<)")


@dataclass(frozen=True, slots=True)
class Rule:
    """One source topic, or a pattern for many; no destination: the source's name."""

    source: str
    destination: str
    mapping: str = SAME
    partitions: PartitionRange = WHOLE

    def __str__(self) -> str:
        """For messages."""
        return f"{self.source}{self.partitions}"

    @property
    def is_pattern(self) -> bool:
        """Whether it can lead to more than one route."""
        return self.source.startswith("^")

    @property
    def is_many_to_one(self) -> bool:
        """Whether this rule alone leads several sources to one destination."""
        return self.is_pattern and bool(self.destination) and not GROUP.search(self.destination)

    def get_destination_topic(self, source_topic: str) -> str | None:
        """The destination topic of this source topic; None when the rule does not match it."""
        if not self.is_pattern:
            return (self.destination or self.source) if source_topic == self.source else None
        pattern_match = (
            None if source_topic.startswith("__") else re.fullmatch(self.source, source_topic)
        )
        return pattern_match and (
            pattern_match.expand(self.destination) if self.destination else source_topic
        )

    def find_errors(self) -> Iterator[str]:
        """One message for each reason why the rule cannot be used."""
        if not self.is_pattern:
            yield from (
                f"{name!r} {LEGAL}{_suggest(name)}"
                for name in dict.fromkeys((self.source, self.destination or self.source))
                if not TOPIC_NAME.fullmatch(name)
            )
        else:
            try:
                # reads the destination, though there is nothing to replace
                re.compile(self.source).sub(self.destination, "")
            except (re.error, IndexError) as reason:
                yield (
                    f"the pattern {self.source!r} cannot be used with {self.destination!r}:"
                    f" {reason}"
                )
            if self.is_many_to_one and not TOPIC_NAME.fullmatch(self.destination):
                yield f"{self.destination!r} {LEGAL}"
        yield from partition_mapping.find_errors(self.mapping)
        last = self.partitions.last
        if last is not None and last < self.partitions.first:
            yield f"{self}: the first partition of a range is not above its last one"


def _suggest(name: str) -> str:
    """kaf-relay writes `source:destination`; a range that cannot be read is part of the name."""
    if name.endswith("]"):
        return ". A range of partitions is written like orders[0-499] or orders[500-]"
    source, colon, destination = name.partition(":")
    return (
        f". To copy {source} to {destination}, write {source}={destination}"
        if colon and source and destination
        else ""
    )


def parse(text: str) -> tuple[Rule, ...]:
    """The rules of a text, separated by commas; nothing is checked yet."""
    return tuple(_parse_rule(part.strip()) for part in BETWEEN.split(text) if part.strip())


def _parse_rule(text: str) -> Rule:
    """A destination has no `=`; a pattern may have one."""
    source, _, target = text.rpartition("=") if "=" in text else (text, "", "")
    destination, _, mapping = target.strip().partition(":")
    name, partitions = partition_range.parse_rule(source.strip())
    return Rule(name, destination.strip(), mapping.strip() or SAME, partitions)


def find_errors(rules: Sequence[Rule]) -> list[str]:
    """One message for each error in the rules that does not depend on the existing topics."""
    errors = [reason for rule in rules for reason in rule.find_errors()]
    errors += [
        f"{source!r} is named {times} times: a source topic has one rule"
        for source, times in Counter(rule.source for rule in rules).items()
        if times > 1
    ]
    return errors or list(find_conflicts(rules, build_routes(rules, ())))


def build_routes(
    rules: Sequence[Rule], topics: Iterable[str], intermediate: str = ""
) -> list[Route]:
    """The routes of the topics that are named, and of those among `topics` that a pattern fits; a
    topic of several rules comes several times.

    `intermediate` replaces the default name, for a single rule.
    """
    named = [
        rule.destination or rule.source
        for rule in rules
        if not rule.is_pattern or rule.is_many_to_one
    ]
    shared = {name for name, times in Counter(named).items() if times > 1} | {
        rule.destination for rule in rules if rule.is_many_to_one
    }
    routes_found = []
    for rule in rules:
        for source in sorted(set(topics)) if rule.is_pattern else [rule.source]:
            destination = rule.get_destination_topic(source)
            if destination is not None:
                base = f"{destination}-{source}" if destination in shared else destination
                routes_found.append(
                    Route(
                        source,
                        destination,
                        intermediate or rule.partitions.build_intermediate_topic(base),
                        rule.mapping,
                        destination in shared,
                        rule.partitions,
                    )
                )
    return routes_found


def find_conflicts(rules: Sequence[Rule], selected: Sequence[Route]) -> Iterator[str]:
    """One message for each reason why these routes cannot be copied side by side."""
    sources = Counter(route.source_topic for route in selected)
    for name, times in sources.items():
        if times > 1:
            matching = [
                rule.source for rule in rules if rule.get_destination_topic(name) is not None
            ]
            yield (
                f"{name!r} is the source of several rules ({', '.join(matching)}): make one of them"
                " narrower"
            )
    shared = {route.destination_topic for route in selected if route.shared}
    own = Counter(
        name
        for name, _ in {
            (route.destination_topic, route.source_topic) for route in selected if not route.shared
        }
    )
    for name, times in own.items():
        if times > 1 or name in shared:
            yield (
                f"several sources lead to {name!r}, by a pattern that gives each a destination of"
                " its own: name the shared destination in a rule"
            )
    # what is said already is not said again of the intermediate topic
    other = [
        route
        for route in selected
        if own[route.destination_topic] < 2 and sources[route.source_topic] < 2
    ]
    yield from _find_intermediate_conflicts(selected, other, own.keys() | shared)
    for route in selected:
        if not (route.partitions.is_whole or route.is_one_to_one):
            yield (
                f"{route}: a range of partitions is copied without a mapping, to a topic to which"
                " no other source leads: another service writes the topic's other partitions"
            )
        for name in (route.destination_topic, route.intermediate_topic):
            if not TOPIC_NAME.fullmatch(name):
                yield f"{route}: {name!r} {LEGAL}"
    yield from _find_collisions(selected)


def _find_collisions(selected: Sequence[Route]) -> Iterator[str]:
    """Brokers refuse a topic beside one whose name differs in dots and underscores only. Of
    intermediate topics nothing is said when their destinations collide.
    """
    copies = [route.destination_topic for route in selected]
    for names in (copies, [*copies, *(route.intermediate_topic for route in selected)]):
        first = {name.replace(".", "_"): name for name in reversed(names)}
        colliding = [name for name in dict.fromkeys(names) if first[name.replace(".", "_")] != name]
        for name in colliding:
            yield (
                f"the topics {first[name.replace('.', '_')]!r} and {name!r} collide: brokers take ."
                " and _ for the same. Give one another destination"
            )
        if colliding:
            return


def _find_intermediate_conflicts(
    selected: Sequence[Route], other: Sequence[Route], destinations: Collection[str]
) -> Iterator[str]:
    between = Counter(route.intermediate_topic for route in selected)
    for name, times in between.items():
        if times > 1 and times == sum(route.intermediate_topic == name for route in other):
            yield f"several routes need the intermediate topic {name!r}: rename a destination"
    for route in selected:
        if route.intermediate_topic in destinations:
            yield (
                f"the intermediate topic of {route} would be {route.intermediate_topic!r}, which is"
                " a destination"
            )
