"""Settings in messages, spelled as the user spells them: as the variable or option that gave the
value, or as the dotted name where that stands in a settings file. No I/O.

Checks that compare settings (`common.settings`) name them by their dotted names, whatever gave
them; here these names are found in a message and replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from common.settings.setting_index import BY_NAME
from common.settings.settings_sources import RawSetting

PLAIN_WORDS = ("application", "instance", "topics")
"""Names that are words too: a name only where a message begins with it, or after "use"."""
_OTHERS = "|".join(
    sorted((re.escape(name) for name in BY_NAME if name not in PLAIN_WORDS), key=len, reverse=True)
)
_NAME = re.compile(
    rf"(?:^|(?<=use )|(?<=use application and ))(?:{'|'.join(PLAIN_WORDS)})(?!\w|[.]\w)"
    rf"|(?<![\w.'\"/-])(?:{_OTHERS})(?![\w…])(?:[.][a-zA-Z][\w.-]*\w)?"
)


def find_names(message: str) -> Iterator[str]:
    """The dotted names of the settings in a message; of an option, that of its table."""
    for match in _NAME.finditer(message):
        yield (
            match[0]
            if match[0] in BY_NAME
            else next(name for name in BY_NAME if match[0].startswith(f"{name}."))
        )


def spell(message: str, values: Mapping[str, RawSetting], uses_files: bool) -> str:
    """The message with each name as the user spells it; one without a value, as the others are
    given: in a file or by variables.
    """

    def replace(match: re.Match[str]) -> str:
        name = match[0]
        if name in values:
            return name if values[name].in_file else values[name].where
        return (
            name
            if uses_files or name not in BY_NAME or not BY_NAME[name].environment
            else BY_NAME[name].environment[0]
        )

    return _NAME.sub(replace, message)
