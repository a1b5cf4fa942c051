"""Reads all settings from their sources and checks them as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.errors import SettingsInvalid
from common.settings import (
    client_options,
    kafka_topic_mirror_variables,
    settings_sources,
)
from common.settings.contradictions import spell_contradictions
from common.settings.conversion import convert_setting
from common.settings.ignored_variables import list_ignored
from common.settings.setting_index import BY_ENVIRONMENT, BY_NAME, SECRETS, SETTINGS
from common.settings.settings import Settings
from common.settings.settings_sources import FILE_VARIABLE

TOPICS = ("source.topic", "topics")


def is_ours(variable: str) -> bool:
    """Whether an environment variable sets a setting; a child process gets
    `Settings.build_environment` instead.
    """
    return (
        variable in BY_ENVIRONMENT
        or variable in SECRETS
        or variable == FILE_VARIABLE
        or variable in kafka_topic_mirror_variables.VARIABLES
        or client_options.parse_variable(variable) is not None
    )


def load(
    environment: Mapping[str, str],
    files: str | Sequence[str] | None = None,
    arguments: Mapping[str, str] | None = None,
) -> Settings:
    """Read and check all settings; SettingsInvalid lists every error. Of several `files` the later
    ones win, name by name.
    """
    raw = settings_sources.read_all(
        environment, [files] if isinstance(files, str) else files or (), arguments or {}
    )
    hint = kafka_topic_mirror_variables.describe_missing(environment)
    values = {setting.name: convert_setting(setting, raw, hint) for setting in SETTINGS}
    is_topic_missing = not values["source.topic"] and not values["topics"]
    if is_topic_missing and raw.invalid.isdisjoint(TOPICS) and not raw.unreadable_file:
        one, several = (raw.spell_missing(BY_NAME[name]) for name in TOPICS)
        raw.fail("source.topic", f"{one} is missing{hint}: what to copy, or {several} for several")
    if not raw.unreadable_file:
        raw.errors.extend(spell_contradictions(Settings(values), raw))
    if raw.errors:
        raise SettingsInvalid(
            "\n  ".join([f"{len(raw.errors)} setting(s) are wrong:", *raw.errors])
        )
    return Settings(
        values,
        {name: setting.where for name, setting in raw.values.items()},
        list_ignored(environment),
    )
