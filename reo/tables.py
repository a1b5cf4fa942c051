"""The tables of README.md that are made from the code: settings, exit codes and permissions.

`python -m reo.tables` writes them between the markers; a test compares what is there with what would be written, so the page
can not fall behind. The exit codes' meanings are the docstrings of the errors.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from common import client_options, mirror_names
from common.client_options import GUARDED
from common.errors import Fenced, ReoError, Stop
from common.permissions import PERMISSIONS
from common.settings_table import SETTINGS, Setting

README = Path(__file__).parent.parent / "README.md"


def settings_table() -> str:
    """Every setting: reo's name, the environment's, those of others, default, meaning."""
    rows = (f"| `{setting.name}` | {_names(setting)} | {_default(setting)} | {_meaning(setting)} |" for setting in SETTINGS)
    return "\n".join(["| setting | environment (other names: kafka-reo's, kafka-topic-mirror's) | default | meaning |", "|---|---|---|---|", *rows])


def exit_codes_table() -> str:
    """Every exit code, the error that ends with it, and when that happens."""
    ends = [(0, "", "The work is done, or SIGTERM or SIGINT asked for the end."),
            (1, "", "Something unexpected; under `reo run` the supervisor starts the stage again.")]
    kinds: list[type[ReoError]] = [Fenced, *_kinds(Stop)]
    ends += [(kind.exit_code, f"`{kind.__name__}`", _first_line(kind)) for kind in kinds]
    return "\n".join(["| exit code | error | when |", "|---|---|---|", *(f"| {code} | {name} | {when} |" for code, name, when in sorted(ends))])


def guarded_options_table() -> str:
    """Every raw option that is not free: which tables it belongs to, the values that do no harm, and why."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    tables: dict[tuple[str, str, str], list[str]] = {}
    for setting, guards in GUARDED.items():
        for option, guard in guards.items():
            key = ("never" if guard.always else guard.harmless, guard.reason, option)
            tables.setdefault(key, []).append(setting)
    for (harmless, reason, option), settings in tables.items():
        rows.setdefault((harmless, reason, "<br>".join(f"`{setting}`" for setting in settings)), []).append(f"`{option}`")
    lines = [f"| {'<br>'.join(options)} | {settings} | {_allowed(harmless)} | {reason} |" for (harmless, reason, settings), options in rows.items()]
    return "\n".join(["| option | of | passed without the switch | why not anything else |", "|---|---|---|---|", *lines])


def _allowed(harmless: str) -> str:
    if harmless == "never":
        return "nothing, with the switch neither"
    return ", ".join(f"`{value}`" for value in harmless.split("|")) if harmless else ""


def permissions_table() -> str:
    """Every ACL: where, on what, which operation, and the commands that need it."""
    rows = (f"| {row.side} | {row.resource} | {NAMES.get(row.named_by, f'`{row.named_by}`')} | {row.operation} | "
            f"{', '.join(f'`{command}`' for command in row.commands)} | {row.why} |" for row in PERMISSIONS)
    return "\n".join(["| cluster | resource | name | operation | needed by `reo …` | for |", "|---|---|---|---|---|---|", *rows])


NAMES = {"application-": "`application` and a hyphen, prefixed", "--group": "the group of `--group`"}
TABLES: Mapping[str, Callable[[], str]] = {"settings": settings_table, "exit codes": exit_codes_table, "guarded options": guarded_options_table,
                                              "permissions": permissions_table}


def between(text: str, name: str) -> str:
    """What stands between a table's markers; ValueError when they are missing."""
    found = _section(name).search(text)
    if found is None:
        raise ValueError(f"README.md has no <!-- {name} --> … <!-- /{name} -->")
    return found[2].strip("\n")


def rewritten(text: str) -> str:
    """The page with every table as the code has it."""
    for name, table in TABLES.items():
        between(text, name)
        content = table()
        text = _section(name).sub(lambda found, content=content: f"{found[1]}\n{content}\n{found[3]}", text)  # type: ignore[misc]
    return text


def _section(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->)(.*?)(<!-- /{name} -->)", re.DOTALL)


def _names(setting: Setting) -> str:
    if setting.kind == "options":
        return f"`{client_options.prefix(setting.name)}…`"
    mirrors = [name for name, ours, _ in mirror_names.NAMES if ours == setting.name]
    return "<br>".join(f"`{name}`" for name in (*setting.environment, *([setting.by_file] if setting.kind == "secret" else ()), *mirrors))


def _default(setting: Setting) -> str:
    if setting.required:
        return "required"
    return f"`{str(setting.default).lower() if setting.kind == 'flag' else setting.default}`" if setting.default != "" else ""


def _meaning(setting: Setting) -> str:
    choices = f" One of {', '.join(f'`{choice}`' for choice in setting.choices if choice)}." if setting.choices else ""
    return setting.meaning.replace("|", "\\|") + choices


def _kinds(base: type[ReoError]) -> Iterator[type[ReoError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


def _first_line(kind: type[ReoError]) -> str:
    return (kind.__doc__ or "").strip().split("\n", 1)[0]


def main() -> int:
    """Write README.md anew; returns the exit code."""
    try:
        README.write_text(rewritten(README.read_text()))
    except (OSError, ValueError) as wrong:
        print(f"reo.tables: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
