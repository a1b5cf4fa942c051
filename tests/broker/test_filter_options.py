"""`filter.options`: what functions are told; on real brokers they all have to agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from common.errors import SettingsInvalid
from common.settings import load
from tests.conftest import Start
from tests.harness.filter_functions import number, passing
from tests.harness.filtered_copy import start_stage_two, wait_for_end, write_source_and_intermediate
from tests.harness.judge import compare_partitions
from tests.harness.kafka import Clusters
from tests.unit.test_settings import GOOD


def test_several_functions_with_options_all_have_to_agree(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The first leaves out one in three, the second all from a number on that it is told; what is
    left is copied, once.
    """
    options = '{"tests.harness.filter_functions:below": {"limit": 50}}'
    both = "tests.harness.filter_functions:no_thirds, tests.harness.filter_functions:below"
    service = start_stage_two(clusters, topic, start, filter_function=both, filter_options=options)
    write_source_and_intermediate(clusters, topic, 100)
    wait_for_end(clusters, service, 100, topic)
    wanted = {
        partition: [record for record in passing(records) if number(record.value) < 50]
        for partition, records in clusters.source.read(topic).items()
    }
    assert compare_partitions(wanted, clusters.destination.read(topic)) == []
    assert sum(map(len, wanted.values())) == 33
    service.stop()


TWO = {
    **GOOD,
    "REO_FILTER_FUNCTION": (
        "tests.harness.filter_functions:every,tests.harness.filter_functions:below"
    ),
}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            '{"tests.harness.filter_functions:below": 1}',
            "its filter.options are 1, and an object is expected",
        ),
        (
            '{"tests.harness.filter_functions:none": {}}',
            (
                "REO_FILTER_OPTIONS has 'tests.harness.filter_functions:none', which is none of"
                " REO_FILTER_FUNCTION"
            ),
        ),
        ("[1]", "REO_FILTER_OPTIONS: a JSON object like"),
        ("limit=1", "REO_FILTER_OPTIONS: a JSON object like"),
    ],
)
def test_options_that_no_function_takes_are_refused(options: str, words: str) -> None:
    """Before anything is copied, with the function and the reason."""
    with pytest.raises(SettingsInvalid) as refused:
        load(TWO | {"REO_FILTER_OPTIONS": options})
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
    loaded = load(TWO, str(tmp_path / name))
    assert json.loads(loaded.filter.options) == {
        "tests.harness.filter_functions:below": {"limit": 5}
    }
    assert load(loaded.build_environment()).values == loaded.values
