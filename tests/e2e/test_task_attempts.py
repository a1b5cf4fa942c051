"""What tells two attempts of a Spark task apart, on a real Spark: the rule relies on it when the
source was compacted between them.
"""

from __future__ import annotations

import json

import pytest

from tests.harness.commands import run_python

QUERY = """
import json
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from replicator import wrap

builder = SparkSession.builder.master("local[1,2]").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
name, attempt = f.expr(wrap.ATTEMPT), wrap._hash_attempt()
fails_at_first = f.when(name.like("task 0.0 %"), f.raise_error(f.lit("the first attempt")))
rows = spark.range(0, 6, 1, 2).select(
    "id", f.spark_partition_id().alias("task"), name.alias("name"), attempt.alias("attempt"),
    fails_at_first.alias("failure"),
).collect()
print(json.dumps([row.asDict() for row in rows]))
"""


@pytest.mark.long  # a fact about the Spark that is pinned
def test_each_attempt_of_a_task_has_its_own_number() -> None:
    """Task 0 fails once, and Spark repeats it: its second attempt has a name and a number of its
    own, one for all its records.
    """
    done = run_python(QUERY, check=True)
    rows = json.loads(done.stdout.splitlines()[-1])
    names = {row["task"]: row["name"] for row in rows}
    assert names[0].startswith("task 0.1 in stage "), "the first attempt has failed"
    assert names[1].startswith("task 1.0 in stage ")
    attempts = {(row["task"], row["name"], row["attempt"]) for row in rows}
    assert len(rows) == 6
    assert len(attempts) == 2, "one number for all records of an attempt"
    assert len({attempt for _, _, attempt in attempts}) == 2
    assert all(0 <= attempt < 2**63 for _, _, attempt in attempts)
