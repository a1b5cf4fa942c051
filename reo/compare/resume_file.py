"""The file of `reo verify --resume FILE`: up to which offsets each partition was equal, and which
topics were compared.

The file is replaced as a whole, so a killed comparison leaves the previous one. When retention has
deleted the remembered offset on either side, the partition is compared from its beginning.
Partitions that are compared by key are read whole every time.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from pathlib import Path

import orjson

from common.errors import SettingsInvalid
from common.kafka.topics import Topic
from common.kafka.visible_records import FROM_BEGINNING
from common.routes import TopicPartition
from reo.compare.comparison import Comparison

VERSION = 1


@dataclass(frozen=True, slots=True)
class ComparedPartition:
    """Up to where one partition was equal: the next offset of each side, and how many records were
    equal.
    """

    source_next: int
    destination_next: int
    equal: int
    starts_late: int = 0
    """1 when records before the first ones were not compared; the next two fields are then where it
    began, if that was searched.
    """
    source_begin: int = -1
    destination_begin: int = -1


@dataclass(slots=True)
class ResumeFile:
    """The file; without a name nothing is remembered."""

    file: str | None
    partitions: dict[str, ComparedPartition] = field(default_factory=dict)
    topic_identities: dict[str, list[str]] = field(default_factory=dict)
    """By source topic: its identity and that of its copy."""

    def read(self) -> None:
        """SettingsInvalid when the file exists and does not have this format."""
        if self.file is None or not Path(self.file).exists():
            return
        try:
            content = orjson.loads(Path(self.file).read_bytes())
            if content["version"] != VERSION:
                raise ValueError(f"version {content['version']}")
            self.topic_identities = {
                str(name): [str(identity) for identity in both]
                for name, both in content["topics"].items()
            }
            self.partitions = {
                str(tp): ComparedPartition(*map(int, row))
                for tp, row in content["partitions"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsInvalid(
                f"--resume {self.file}: this is not a file that reo verify has written ({error})."
                " Name another file, or delete it"
            ) from None

    def check_topics(self, source: Topic, destination: Topic) -> None:
        """SettingsInvalid when the file is about other topics."""
        identities = [source.identity, destination.identity]
        if self.topic_identities.setdefault(source.name, identities) != identities:
            raise SettingsInvalid(
                f"--resume {self.file}: topic {source.name} or its copy was recreated since this"
                " file was written. Name another file, or delete it"
            )

    def start_comparison(
        self, tp: TopicPartition, source_begin: int, destination_begin: int
    ) -> Comparison:
        """Begin a partition at the remembered offsets, if both sides still have them, or else at
        the first record.
        """
        known = self.partitions.get(str(tp))
        if (
            known is None
            or known.source_next < source_begin
            or known.destination_next < destination_begin
        ):
            return Comparison(tp, FROM_BEGINNING, FROM_BEGINNING)
        common_start = (
            (known.source_begin, known.destination_begin) if known.source_begin >= 0 else None
        )
        return Comparison(
            tp,
            known.source_next,
            known.destination_next,
            known.equal,
            common_start=common_start,
            starts_late=bool(known.starts_late),
        )

    def remember(self, result: Comparison) -> None:
        """Note up to where a partition is equal."""
        if self.file is not None and result.equal and not result.by_key:
            self.partitions[str(result.tp)] = ComparedPartition(
                result.source_next,
                result.destination_next,
                result.equal,
                int(result.starts_late),
                *(result.common_start or (-1, -1)),
            )

    def write(self) -> None:
        """Replace the file; SettingsInvalid when that is not possible."""
        if self.file is None:
            return
        new_file = Path(f"{self.file}.new")
        try:
            new_file.write_bytes(
                orjson.dumps(
                    {
                        "version": VERSION,
                        "topics": self.topic_identities,
                        "partitions": {
                            tp: list(astuple(known)) for tp, known in self.partitions.items()
                        },
                    }
                )
            )
            new_file.replace(self.file)
        except OSError as error:
            raise SettingsInvalid(
                f"--resume {self.file}: it cannot be written: {error.strerror}"
            ) from None
