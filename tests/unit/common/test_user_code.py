"""The user's own code: whether it can be called is found at the start and by `reo check`, no other
command imports it, and `filter.options` are of a function that there is.
"""

import json
from pathlib import Path

import pytest

from common.errors import SettingsInvalid
from common.settings import load, user_code
from tests.unit.common.settings.test_settings import GOOD

CLUSTERS = {
    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
    "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
    "REO_APPLICATION": "copies",
}
ONE = CLUSTERS | {"REO_SOURCE_TOPIC": "orders"}
FUNCTIONS = "tests.harness.filter_functions"
TWO_FUNCTIONS = {
    **GOOD,
    "REO_FILTER_FUNCTION": (
        "tests.harness.filter_functions:every,tests.harness.filter_functions:below"
    ),
}


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (
            ONE | {"REO_FILTER_FUNCTION": f"{FUNCTIONS}:no_such_thing"},
            f"REO_FILTER_FUNCTION {FUNCTIONS}:no_such_thing cannot be used: AttributeError",
        ),
        (ONE | {"REO_FILTER_FUNCTION": f"{FUNCTIONS}:__doc__"}, "it cannot be called"),
        (
            ONE | {"REO_FILTER_FUNCTION": f"{FUNCTIONS}:every,{FUNCTIONS}:below"},
            (
                f"{FUNCTIONS}:below cannot be used: it does not take a record and these"
                " REO_FILTER_OPTIONS (none): missing a required argument: 'limit'"
            ),
        ),
        (
            ONE
            | {
                "REO_FILTER_FUNCTION": f"{FUNCTIONS}:below",
                "REO_FILTER_OPTIONS": f'{{"{FUNCTIONS}:below": {{"limt": 1}}}}',
            },
            "these REO_FILTER_OPTIONS (limt): ",
        ),
        (
            CLUSTERS | {"REO_TOPICS": "a=b:no.such.module:function"},
            "the mapping no.such.module:function cannot be used: ModuleNotFoundError",
        ),
        (
            CLUSTERS | {"REO_TOPICS": "a=b:os:nothing"},
            "REO_TOPICS: the mapping os:nothing cannot be used: AttributeError",
        ),
        (
            CLUSTERS | {"REO_TOPICS": "a=b:os:name"},
            "the mapping os:name cannot be used: it cannot be called",
        ),
        (
            ONE | {"REO_DESTINATION_CLASS": "nowhere:Store"},
            "REO_DESTINATION_CLASS nowhere:Store cannot be used: ModuleNotFoundError",
        ),
    ],
)
def test_what_cannot_be_called_is_refused(given: dict[str, str], part: str) -> None:
    """The settings are valid by themselves; the check says what is wrong with the code, by the name
    that the user gave.
    """
    loaded = load(given)
    with pytest.raises(SettingsInvalid) as wrong:
        user_code.check_user_code(loaded)
    assert part in str(wrong.value)


def test_a_settings_file_is_named_as_it_is_written(tmp_path: Path) -> None:
    """In a file the setting has its dotted name."""
    file = tmp_path / "reo.toml"
    file.write_text(f'[filter]\nfunction = "{FUNCTIONS}:below"\n')
    with pytest.raises(
        SettingsInvalid,
        match=(
            r"  filter.function tests.harness.filter_functions:below cannot be used: .*these"
            r" filter.options \(none\)"
        ),
    ):
        user_code.check_user_code(load(ONE, str(file)))


def test_reading_settings_imports_no_code_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing can take long, have effects, or fail where stage two does not run."""
    (tmp_path / "own_code.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    loaded = load(
        CLUSTERS | {"REO_TOPICS": "a=b:own_code:choose", "REO_FILTER_FUNCTION": "own_code:passes"}
    )
    assert user_code.list_names(loaded) == ["own_code:choose", "own_code:passes"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            '{"tests.harness.filter_functions:below": "s3cret"}',
            "an object is expected as its filter.options",
        ),
        (
            '{"tests.harness.filter_functions:none": {}}',
            (
                "REO_FILTER_OPTIONS has 'tests.harness.filter_functions:none', which is none of"
                " REO_FILTER_FUNCTION"
            ),
        ),
        ("[1]", "REO_FILTER_OPTIONS: a JSON object like"),
        ("limit=s3cret", "REO_FILTER_OPTIONS: a JSON object like"),
    ],
)
def test_options_that_no_function_takes_are_refused(options: str, words: str) -> None:
    """Before anything is copied, with the function and the reason, and without their values."""
    with pytest.raises(SettingsInvalid) as refused:
        load(TWO_FUNCTIONS | {"REO_FILTER_OPTIONS": options})
    assert "s3cret" not in str(refused.value)
    assert words.replace("filter.options", "REO_FILTER_OPTIONS") in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reo.toml", '[filter.options."tests.harness.filter_functions:below"]\nlimit = 5\n'),
        (
            "reo.yaml",
            "filter:\n  options:\n    tests.harness.filter_functions:below:\n      limit: 5\n",
        ),
        ("reo.ini", '[filter]\noptions = {"tests.harness.filter_functions:below": {"limit": 5}}\n'),
    ],
)
def test_options_in_a_file(tmp_path: Path, name: str, text: str) -> None:
    """As tables, or as JSON in INI, which has none; a child process gets the same."""
    (tmp_path / name).write_text(text)
    loaded = load(TWO_FUNCTIONS, str(tmp_path / name))
    assert json.loads(loaded.filter.options) == {
        "tests.harness.filter_functions:below": {"limit": 5}
    }
    assert load(loaded.build_environment()).values == loaded.values
