"""Reads all settings from their sources and checks them as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common import otel_resource
from common.settings import client_options, conversion, foreign_variables
from common.settings.contradictions import find_contradictions
from common.settings.declaration import Setting
from common.settings.refusal import Origin, has_files, refuse
from common.settings.schema import BY_ENVIRONMENT, BY_NAME, OPTION_TABLES, SECRETS, SETTINGS
from common.settings.settings import Settings, Value
from common.settings.value_sources import FILE_VARIABLE, File, Sources, read_all

TOPICS = ("source.topic", "topics")


def is_ours(variable: str) -> bool:
    """Whether a variable sets a setting; children get `Settings.build_environment`."""
    return (
        variable in {*BY_ENVIRONMENT, *SECRETS, *foreign_variables.VARIABLES, FILE_VARIABLE}
        or client_options.parse_variable(variable) is not None
    )


def load(
    environment: Mapping[str, str],
    files: File | Sequence[File] = (),
    arguments: Mapping[str, str] | None = None,
) -> Settings:
    """Read and check all settings; SettingsInvalid lists all errors. Later `files` win."""
    given = [files] if isinstance(files, str | Mapping) else files
    sources = read_all(environment, given, arguments or {})
    given_by = {name: given.origin for name, given in sources.values.items()}
    values = _convert_all(sources)
    wrong = dict(sources.errors)
    not_taken = list(foreign_variables.list_ignored(environment))
    not_taken += filter(None, [otel_resource.find_error(environment)])
    settings = Settings.build(values, given_by, not_taken)
    if not sources.has_unreadable_file:
        hint = foreign_variables.describe_missing(environment)
        wrong |= _find_missing(values, given_by, hint, wrong)
        refusals = [
            refusal.spell(given_by)
            for refusal in find_contradictions(settings, wrong)
            # what only follows from a setting that is wrong by itself is no second error
            if wrong.keys().isdisjoint(refusal.names)
        ]
        wrong |= zip(refusals, refusals, strict=True)
    if wrong:
        raise refuse(list(wrong.values()))
    return settings


def _convert_all(sources: Sources) -> dict[str, Value]:
    """Every setting's value, or its default."""
    values: dict[str, Value] = {setting.name: setting.default for setting in SETTINGS}
    options: dict[str, dict[str, str]] = {table: {} for table in OPTION_TABLES}
    for name, (given, origin) in sources.values.items():
        option = client_options.split_name(name)
        try:
            if option:
                options[option[0]][option[1]] = client_options.to_text(given)
            else:
                values[name] = conversion.convert(BY_NAME[name], given)
        except ValueError as reason:
            sources.errors[name] = f"{origin}: {reason}"
    return values | options


def _find_missing(
    values: Mapping[str, Value],
    given_by: Mapping[str, Origin],
    hint: str,
    wrong: Mapping[str, str],
) -> dict[str, str]:
    def spell(setting: Setting) -> str:
        return setting.name if has_files(given_by) else " or ".join(setting.environment)

    missing = {
        setting.name: f"{spell(setting)} is missing{hint}: {setting.meaning}"
        for setting in SETTINGS
        if setting.required and setting.name not in given_by
    }
    if not any(values[name] or name in wrong for name in TOPICS):
        one, several = (spell(BY_NAME[name]) for name in TOPICS)
        missing["source.topic"] = f"{one} is missing{hint}: what to copy, or {several} for several"
    return missing
