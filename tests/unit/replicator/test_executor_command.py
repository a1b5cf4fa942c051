"""The command line of `reo executor`, which Spark starts in its pods on Kubernetes; with pods that
copy: `tests/e2e/test_executor.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from replicator.spark import executor_command
from tests.harness.kafka import ROOT

GIVEN = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "4",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_EXECUTOR_POD_NAME": "reo-exec-1",
    "SPARK_CONF_DIR": "/opt/spark/conf",
}


@pytest.mark.usefixtures("empty_jars")
def test_the_command_line_is_that_of_sparks_own_image() -> None:
    """Options in the order of their numbers, the heap, the class path with what was put before it,
    and each argument of KubernetesExecutorBackend.
    """
    words = executor_command.build_command(
        GIVEN
        | {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in reversed(range(12))}
        | {"SPARK_CLASSPATH": "/mine.jar", "SPARK_DIST_CLASSPATH": "/last.jar"}
    )
    assert [word for word in words if word.startswith("-Dn=")] == [
        f"-Dn={number}" for number in range(12)
    ]
    assert words[-15:] == [
        executor_command.MAIN,
        "--driver-url",
        GIVEN["SPARK_DRIVER_URL"],
        "--executor-id",
        "1",
        "--cores",
        "4",
        "--app-id",
        "spark-1",
        "--hostname",
        "10.0.0.8",
        "--resourceProfileId",
        "0",
        "--podName",
        "reo-exec-1",
    ]
    class_path = words[words.index("-cp") + 1]
    assert class_path.startswith("/mine.jar:")
    assert class_path.endswith(":/last.jar")
    assert "spark-sql-kafka" in class_path
    assert {"-Xms512m", "-Xmx512m"} < set(words)


@pytest.mark.parametrize("form", ["text", "json"])
def test_by_hand_it_says_that_it_is_not_for_hands(form: str) -> None:
    """Without Spark's environment: exit code 2, one message with what is missing."""
    done = subprocess.run(
        [sys.executable, "-m", "reo", "executor"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "REO_LOG_FORMAT": form, **dict(list(GIVEN.items())[:3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    said = json.loads(line)["event"] if form == "json" else line
    assert "Spark starts `reo executor` in its pods on Kubernetes" in said
    assert "SPARK_APPLICATION_ID, SPARK_EXECUTOR_POD_IP" in said
    assert "SPARK_DRIVER_URL" not in said
