"""Step 6 of `reo cutover`: the offsets of the moving groups are translated and committed at the
destination, those of all groups or of none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from common.errors import GroupBusy
from common.settings import Settings
from reo.migration.moving_topics import MovingGroup
from reo.migration.offsets_translate import Translator
from reo.migration.translation_report import TranslatedPartition


def translate_groups(
    settings: Settings, groups: Sequence[MovingGroup], report: Callable[[str], None]
) -> dict[str, list[TranslatedPartition]]:
    """Every group is translated, then all are committed; the rows by group. A typed error, and
    nothing is committed, when one cannot be translated or is active at the destination.
    """
    translator = Translator(settings)
    rows = {group.name: translator.translate(group.name) for group in groups}
    for group in groups:
        for row in rows[group.name]:
            if row.refusal:
                raise type(row.refusal)(
                    f"group {group.name}: {row.refusal}. To move without this group, give the"
                    " others with --groups"
                )
        if group.is_active_at_destination and any(row.moves for row in rows[group.name]):
            raise GroupBusy(
                f"group {group.name} has members at the destination, and has not read there"
                " what it has read at the source: stop its consumers there, run the command"
                " again, then start them"
            )
    for name, translated in rows.items():
        if any(row.moves for row in translated):
            translator.commit(name, translated)
        if all(row.source_offset is None for row in translated):
            report(
                f"6 group {name} has no offset at the source: nothing says where it continues,"
                " and at the destination it begins where its auto.offset.reset says"
            )
        for row in translated:
            if row.offsets_ahead:
                report(
                    f"6 group {name} on {row.destination}: stays at {row.committed_offset},"
                    f" {row.offsets_ahead} offsets further than at the source"
                )
    report(f"6 the offsets are translated and committed at the destination; groups: {len(rows)}")
    return rows
