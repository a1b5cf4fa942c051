"""`filter.options`: what functions are told; on real brokers they all have to agree."""

from __future__ import annotations

from tests.conftest import Start
from tests.harness.copy_judge import compare_partitions
from tests.harness.filter_functions import number, passing
from tests.harness.filtered_copy import start_stage_two, wait_for_end, write_source_and_intermediate
from tests.harness.kafka import Clusters


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
