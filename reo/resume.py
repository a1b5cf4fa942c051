"""What `reo verify --resume FILE` remembers: how far each partition was found equal, and of which topics that was.

The file is replaced as a whole, so a comparison that is killed leaves the one before. A place that either side no longer has, because retention took it, is no
place to go on from: there the partition is begun anew. Partitions that were compared by key have to be read whole every time.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from pathlib import Path

import orjson

from common.errors import SettingsInvalid
from common.positions import FROM_BEGINNING
from common.routes import Place
from common.topics import Topic
from reo.comparison import Comparison

VERSION = 1


@dataclass(frozen=True, slots=True)
class Known:
    """How far one partition was found equal: the next offset of each side, and how many records that were."""

    source_next: int
    destination_next: int
    equal: int
    cut: int = 0
    """1 when records before the first ones were not compared; then where it began, if that was looked for."""
    source_begin: int = -1
    destination_begin: int = -1


@dataclass(slots=True)
class Memory:
    """The file; without a name nothing is kept."""

    file: str | None
    known: dict[str, Known] = field(default_factory=dict)
    of: dict[str, list[str]] = field(default_factory=dict)
    """By source topic, the identities of it and of its copy."""

    def read(self) -> None:
        """SettingsInvalid when it is there and is none."""
        if self.file is None or not Path(self.file).exists():
            return
        try:
            found = orjson.loads(Path(self.file).read_bytes())
            if found["version"] != VERSION:
                raise ValueError(f"version {found['version']}")
            self.of = {str(name): [str(one) for one in both] for name, both in found["topics"].items()}
            self.known = {str(place): Known(*map(int, row)) for place, row in found["partitions"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as wrong:
            raise SettingsInvalid(f"--resume {self.file}: it cannot be read as what reo verify writes ({wrong}): name another file, or delete it") from None

    def check(self, source: Topic, destination: Topic) -> None:
        """SettingsInvalid when what is remembered is of other topics."""
        now = [source.identity, destination.identity]
        if self.of.setdefault(source.name, now) != now:
            raise SettingsInvalid(f"--resume {self.file}: it speaks of another topic {source.name}, or of another copy of it, than is there now: "
                                  "name another file, or delete it")

    def begin(self, place: Place, source_begin: int, destination_begin: int) -> Comparison:
        """Where a partition's comparison begins: what is remembered, while both sides still have it, or the first record."""
        known = self.known.get(str(place))
        if known is None or known.source_next < source_begin or known.destination_next < destination_begin:
            return Comparison(place, FROM_BEGINNING, FROM_BEGINNING)
        begun = (known.source_begin, known.destination_begin) if known.source_begin >= 0 else None
        return Comparison(place, known.source_next, known.destination_next, known.equal, begun=begun, cut=bool(known.cut))

    def note(self, result: Comparison) -> None:
        """Remember how far a partition is."""
        if self.file is not None and result.equal and not result.by_key:
            self.known[str(result.place)] = Known(result.source_next, result.destination_next, result.equal, int(result.cut), *(result.begun or (-1, -1)))

    def write(self) -> None:
        """Replace the file; SettingsInvalid when that is not possible."""
        if self.file is None:
            return
        new = Path(f"{self.file}.new")
        try:
            new.write_bytes(orjson.dumps({"version": VERSION, "topics": self.of, "partitions": {
                place: list(astuple(known)) for place, known in self.known.items()}}))
            new.replace(self.file)
        except OSError as failed:
            raise SettingsInvalid(f"--resume {self.file}: it cannot be written: {failed.strerror}") from None
