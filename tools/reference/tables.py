"""Settings, guarded options, exit codes and permissions, from the tables of `common`. The exit
codes' meanings are the docstrings of the errors.
"""

from __future__ import annotations

from common.errors import ReoError
from common.kafka.needed_acls import PARKED, PERMISSIONS
from common.settings import client_options, foreign_variables
from common.settings.declaration import Setting
from common.settings.guarded_options import GUARDED, Guard
from common.settings.schema import CANDIDATES_MAX, SETTINGS

STOPS = "how-to/stops.md"
"""The page that says what to do, one heading for each exit code."""


def settings_table() -> str:
    """Every setting: reo's name, the environment's, those of others, default, meaning. Settings of
    both clusters that mean the same have one row.
    """
    alike: dict[tuple[str, str], list[Setting]] = {}
    for setting in SETTINGS:
        if not setting.candidate:
            key = (setting.name.rpartition(".")[2], setting.meaning)
            alike.setdefault(key, []).append(setting)
    rows = [
        f"| {'<br>'.join(f'`{setting.name}`' for setting in settings)} |"
        f" {'<br>'.join(map(_names, settings))} |"
        f" {_default(settings[0])} | {_meaning(settings[0])} |"
        for settings in alike.values()
    ]
    last = max(number for number, row in enumerate(rows) if row.startswith("| `source."))
    rows.insert(
        last + 1,
        f"| `source.1.…` to `source.{CANDIDATES_MAX}.…` | `REO_SOURCE_1_…` to"
        f" `REO_SOURCE_{CANDIDATES_MAX}_…` |  | Of one candidate alone, by its place in"
        " `source.bootstrap_servers`: `security_protocol`, `sasl_…`, `ssl_…` and"
        " `consumer_options`. What is not set is as for all of them. |",
    )
    return "\n".join(
        [
            (
                "| setting | environment (other names: kafka-reo's, kafka-topic-mirror's) | default"
                " | meaning |"
            ),
            "|---|---|---|---|",
            *rows,
        ]
    )


def exit_codes_table() -> str:
    """Every exit code, the error that ends with it, and when that happens; the code leads to what
    to do.
    """
    codes = sorted(
        (error.exit_code, error.__name__, _first_paragraph(error)) for error in list_stop_errors()
    )
    rows = (
        f"| [{code}]({STOPS}#{code}-{name.lower()}) | `{name}` | {when} |"
        for code, name, when in codes
    )
    return "\n".join(
        [
            "| exit code | error | when |",
            "|---|---|---|",
            "| 0 |  | The work is done; for `reo run` also: SIGTERM or SIGINT asked for the end. |",
            *rows,
            (
                "| 130 |  | A command was interrupted (Ctrl-C). By SIGTERM it is 143, by SIGHUP"
                " 129; 0 where that is its normal end (`heartbeat`, `status --watch`). |"
            ),
            "| 141 |  | Nobody reads the command's output any more. |",
            "| 143 |  | With `--stop-at-end`: SIGTERM or SIGINT came before all was copied. |",
        ]
    )


def list_stop_errors() -> list[type[ReoError]]:
    """Every error that ends a process with a code of its own."""
    return list(ReoError.by_exit_code.values())


def guarded_options_table() -> str:
    """Every raw option that is not free: which tables it belongs to, the values that do no harm,
    and why.
    """
    settings: dict[tuple[str, str], list[str]] = {}
    for setting, guards in GUARDED.items():
        for option, guard in guards.items():
            key = (f"`{option}`{_allowed(guard)}", guard.reason)
            settings.setdefault(key, []).append(f"`{setting}`")
    rows: dict[tuple[str, str], list[str]] = {}
    for (option, reason), names in settings.items():
        rows.setdefault(("<br>".join(names), reason), []).append(option)
    lines = [
        f"| {'<br>'.join(options)} | {names} | {reason} |"
        for (names, reason), options in rows.items()
    ]
    heading = "| option: allowed values | setting | why no others |"
    return "\n".join([heading, "|---|---|---|", *lines])


def _allowed(guard: Guard) -> str:
    values = ", ".join(f"`{value}`" for value in guard.harmless.split("|"))
    return ("\\*" if guard.always else "") + (f": {values}" if guard.harmless else "")


def permissions_table() -> str:
    """Every ACL: where, on what, which operation, and the commands that need it."""
    rows = (
        f"| {row.side} | {row.resource} | {NAMES.get(row.named_by, f'`{row.named_by}`')} |"
        f" {row.operation} | {', '.join(f'`{command}`' for command in row.patterns)} | {row.why} |"
        for row in PERMISSIONS
    )
    return "\n".join(
        [
            "| cluster | resource | name | operation | needed by `reo …` | for |",
            "|---|---|---|---|---|---|",
            *rows,
        ]
    )


NAMES = {
    "application-": "`application` and a hyphen, prefixed",
    "application-routes": "`application` and `-routes`",
    "--group": "the group of `--group`",
    PARKED: "with `filter.on_error=park`: `<destination.topic>-parked`",
}


IAM_ACTIONS = {
    ("Topic", "Read"): "ReadData",
    ("Topic", "Write"): "WriteData",
    ("Topic", "Create"): "CreateTopic",
    ("Topic", "Describe"): "DescribeTopic",
    ("Topic", "Alter"): "AlterTopic",
    ("Topic", "Delete"): "DeleteTopic",
    ("Topic", "DescribeConfigs"): "DescribeTopicDynamicConfiguration",
    ("Topic", "AlterConfigs"): "AlterTopicDynamicConfiguration",
    ("Group", "Read"): "AlterGroup",
    ("Group", "Describe"): "DescribeGroup",
    ("TransactionalId", "Write"): "AlterTransactionalId",
}
"""By resource and operation of an ACL (Amazon MSK's documentation, "Semantics of IAM authorization
policy actions and resources").
"""


def iam_actions_table() -> str:
    """For each operation of the permissions, the action of Amazon MSK's IAM that is equivalent."""
    actions: dict[str, list[str]] = {}
    for resource, operation in dict.fromkeys((row.resource, row.operation) for row in PERMISSIONS):
        action = f"{operation}: `{IAM_ACTIONS[resource, operation]}`"
        actions.setdefault(resource, []).append(action)
    rows = (f"| {resource} | {', '.join(texts)} |" for resource, texts in actions.items())
    return "\n".join(["| resource | ACL: action of IAM |", "|---|---|", *rows])


def _names(setting: Setting) -> str:
    if setting.kind == "options":
        return f"`{client_options.get_variable_prefix(setting.name)}…`"
    mirrors = [name for name, ours, _ in foreign_variables.NAMES if ours == setting.name]
    return "<br>".join(
        f"`{name}`"
        for name in (
            *setting.environment,
            *([setting.file_variable] if setting.kind == "secret" else ()),
            *mirrors,
        )
    )


def _default(setting: Setting) -> str:
    if setting.required:
        return "required"
    return (
        f"`{str(setting.default).lower() if setting.kind == 'flag' else setting.default}`"
        if setting.default not in ("", None)
        else ""
    )


def _meaning(setting: Setting) -> str:
    """With the choices that it does not name itself."""
    names = [f"`{choice}`" for choice in setting.choices if choice]
    is_named = all(name in setting.meaning for name in names)
    choices = "" if is_named else f" One of {', '.join(names)}."
    return setting.meaning.replace("|", "\\|") + choices + _format_range(setting)


def _format_range(setting: Setting) -> str:
    """The smallest and the largest value that a number may have, where one of them is not 0 or
    that of a 32-bit integer.
    """
    if setting.kind != "integer" or (setting.minimum, setting.maximum) == (0, 2**31 - 1):
        return ""
    if setting.maximum == 2**31 - 1:
        return f" At least {setting.minimum}."
    return f" {setting.minimum} to {setting.maximum}."


def _first_paragraph(kind: type[ReoError]) -> str:
    return " ".join((kind.__doc__ or "").strip().split("\n\n", 1)[0].split())
