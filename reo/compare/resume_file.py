"""The file of `reo verify --resume FILE`: up to which offsets each partition was equal, and which
topics were compared.

The file is replaced as a whole, so a killed comparison leaves the previous one. It is written once
before anything is compared; that it cannot be written later, as on a full disk, costs no result.
When retention has deleted the remembered offset on either side, the partition is compared from its
beginning. Partitions that are compared by key are read whole every time.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from common.errors import SettingsInvalid
from common.kafka.topics import Topic
from common.kafka.visible_records import FROM_BEGINNING
from common.routes import TopicPartition
from reo.compare.comparison import Comparison


class ComparedPartition(msgspec.Struct, array_like=True, frozen=True):
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


class Content(msgspec.Struct):
    """What the file has, as JSON."""

    version: Literal[1]
    topics: dict[str, list[str]]
    """By source topic: its identity and that of its copy."""
    partitions: dict[str, ComparedPartition]
    """By source partition."""


@dataclass(slots=True)
class ResumeFile:
    """The file; without a name all is remembered for this process only."""

    file: str | None
    content: Content = field(default_factory=lambda: Content(1, {}, {}))
    has_warned: bool = False

    def read(self) -> None:
        """SettingsInvalid when the file cannot be read, or does not have this format. One that does
        not exist remembers nothing.
        """
        if self.file is None:
            return
        try:
            self.content = msgspec.json.decode(Path(self.file).read_bytes(), type=Content)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SettingsInvalid(
                f"--resume {self.file}: this is not a file that reo verify has written ({error})."
                " Name another file, or delete it"
            ) from None

    def check_topics(self, source: Topic, destination: Topic) -> None:
        """SettingsInvalid when the file is about other topics."""
        identities = [source.identity, destination.identity]
        if self.content.topics.setdefault(source.name, identities) != identities:
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
        result = Comparison(tp, FROM_BEGINNING, FROM_BEGINNING)
        known = self.content.partitions.get(str(tp))
        if (
            known is not None
            and known.source_next >= source_begin
            and known.destination_next >= destination_begin
        ):
            result.source_next, result.destination_next = known.source_next, known.destination_next
            result.equal, result.starts_late = known.equal, bool(known.starts_late)
            if known.source_begin >= 0:
                result.common_start = known.source_begin, known.destination_begin
        return result

    def remember(self, result: Comparison) -> None:
        """Note up to where a partition is equal."""
        if result.equal and not result.by_key:
            self.content.partitions[str(result.tp)] = ComparedPartition(
                result.source_next,
                result.destination_next,
                result.equal,
                int(result.starts_late),
                *(result.common_start or (-1, -1)),
            )

    def check_writable(self) -> None:
        """Replace the file; SettingsInvalid when that is not possible."""
        if error := self._replace():
            raise SettingsInvalid(f"--resume {self.file}: it cannot be written: {error}")

    def write(self) -> bool:
        """Replace the file. Where that is not possible any more it is said once, on standard error,
        and the comparison goes on.
        """
        error = self._replace()
        if error and not self.has_warned:
            self.has_warned = True
            print(
                f"--resume {self.file}: it cannot be written any more: {error}. The comparison"
                " goes on; what it finds from now on is not noted",
                file=sys.stderr,
                flush=True,
            )
        return not error

    def _replace(self) -> str:
        """Returns why it is not possible; empty when it is done."""
        if self.file is None:
            return ""
        new_file = Path(f"{self.file}.new")
        try:
            new_file.write_bytes(msgspec.json.encode(self.content))
            new_file.replace(self.file)
        except OSError as error:
            with suppress(OSError):
                new_file.unlink()
            return error.strerror or str(error)
        return ""
