"""Raw options of Spark, and what it is told of the place where its tasks run: names keep upper and
lower case, and raw options win.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import yaml

from common.kafka import msk_iam
from common.settings import is_ours, load
from replicator.spark import connector_jars, jvm_options, session, spark_master
from tests.unit.common.kafka.test_client_options import read_refusal
from tests.unit.common.settings.test_settings import GOOD

pytestmark = pytest.mark.usefixtures("empty_jars")
ENVIRONMENT = "REO_REPLICATOR_SPARK_OPTIONS_"
KUBERNETES = {
    "REO_REPLICATOR_MASTER": "k8s://https://kubernetes.default.svc",
    f"{ENVIRONMENT}spark_kubernetes_container_image": "reo:1",
}
OPTIONS = {
    "spark.kubernetes.executor.podTemplateFile": "/a/Pod.yaml",
    "spark.executor.instances": "3",
    "spark.kubernetes.node.selector.topology.kubernetes.io/zone": "a",
}
FORMS = {
    "reo.toml": (
        "[replicator.spark_options]\nspark.kubernetes.executor.podTemplateFile ="
        ' "/a/Pod.yaml"\nspark.executor.instances ='
        ' 3\n"spark.kubernetes.node.selector.topology.kubernetes.io/zone" = "a"\n'
    ),
    "reo.yaml": yaml.safe_dump({"replicator": {"spark_options": OPTIONS}}),
    "reo.json": json.dumps({"replicator": {"spark_options": OPTIONS}}),
    "reo.ini": (
        "[Replicator.Spark_Options]\n"
        + "".join(f"{name} = {text}\n" for name, text in OPTIONS.items())
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_names_keep_their_case(tmp_path: Path, name: str) -> None:
    """In every form of a file; the environment replaces one; a child is handed all of them, and
    they are told from other variables.
    """
    file = tmp_path / name
    file.write_text(FORMS[name])
    assert load(GOOD, str(file)).replicator.spark_options == OPTIONS
    loaded = load(
        GOOD | {f"{ENVIRONMENT}spark_executor_instances": "4", f"{ENVIRONMENT}spark_a__b": "c"},
        str(file),
    )
    assert loaded.replicator.spark_options == OPTIONS | {
        "spark.executor.instances": "4",
        "spark.a_b": "c",
    }
    handed = loaded.build_environment()
    assert load(handed).values == loaded.values
    assert all(map(is_ours, handed))


@pytest.mark.parametrize(
    "option", ["SPARK.DRIVER.HOST", "executor.instances", "spark", "spark.", "spark.a b"]
)
def test_what_is_no_option_of_sparks(tmp_path: Path, option: str) -> None:
    """Capitals are another name to Spark, which would be passed over in silence."""
    (tmp_path / "reo.json").write_text(json.dumps({"replicator": {"spark_options": {option: "a"}}}))
    assert (
        "is not the name of an option of Spark's, which begins with spark. and keeps its upper and"
        " lower case" in read_refusal(GOOD, str(tmp_path / "reo.json"))
    )


@pytest.mark.parametrize("master", ["", "spark://host:7077", "k8s://https://host"])
def test_raw_options_win_wherever_tasks_run(master: str) -> None:
    """And what reo gives besides stays."""
    given = (
        GOOD
        | KUBERNETES
        | {
            "REO_REPLICATOR_MASTER": master,
            f"{ENVIRONMENT}spark_driver_host": "10.0.0.7",
            f"{ENVIRONMENT}spark_task_maxFailures": "3",
        }
    )
    told = session.build_configuration(load(given), 1)
    assert (
        told["spark.driver.host"],
        told["spark.task.maxFailures"],
        told["spark.speculation"],
    ) == ("10.0.0.7", "3", "false")
    assert told["spark.master"] == (master or "local[8]")


def test_each_jvm_has_a_log_configuration_of_its_own() -> None:
    """Also beside another one in the same folder, which asks for another layout."""
    options = {
        layout: session.build_configuration(load(GOOD | {"REO_LOG_FORMAT": layout}), 1)
        for layout in ("json", "text")
    }
    for layout, of_layout in options.items():
        first, *_ = of_layout["spark.driver.extraJavaOptions"].split()
        file = Path(first.removeprefix("-Dlog4j2.configurationFile="))
        assert jvm_options.LAYOUTS[layout].replace("STAGE", jvm_options.DRIVER) in file.read_text()
        file.unlink()


def test_libraries_of_the_jvm_unpack_their_code_into_reos_own_folder() -> None:
    """/tmp may be read-only or without `exec`, and what a killed JVM leaves there stays."""
    told = session.build_configuration(load(GOOD), 1)
    log, *options = told["spark.driver.extraJavaOptions"].split()
    Path(log.removeprefix("-Dlog4j2.configurationFile=")).unlink()
    assert f"-Djava.io.tmpdir={tempfile.gettempdir()}" in options


@pytest.mark.parametrize("partitions", [1, 3, 4, 5, 64, 200, 201, 999, 1000, 5000])
def test_without_one_executor_there_is_a_core_for_each_partition(partitions: int) -> None:
    """On Kubernetes, when one is lost. None has more tasks than an executor's heap is for."""
    told = spark_master.build_configuration(load(GOOD | KUBERNETES), partitions)
    cores, executors = (int(told[f"spark.executor.{what}"]) for what in ("cores", "instances"))
    assert cores * (executors - 1) >= partitions
    assert cores <= spark_master.TASKS_MAX


@pytest.mark.parametrize(
    ("partitions", "cores", "cores_max"), [(1, None, "8"), (200, None, "400"), (500, "167", "668")]
)
def test_a_worker_of_a_standalone_cluster_gives_all_its_cores_while_one_executor_is_enough(
    partitions: int, cores: str | None, cores_max: str
) -> None:
    """Beyond that an executor has as many as elsewhere."""
    told = spark_master.build_configuration(
        load(GOOD | {"REO_REPLICATOR_MASTER": "spark://host:7077"}), partitions
    )
    assert (told.get("spark.executor.cores"), told["spark.cores.max"]) == (cores, cores_max)


@pytest.mark.parametrize(
    ("given", "driver", "executor"),
    [
        ({}, "3728m", None),
        (KUBERNETES, "512m", "1347m"),
        (KUBERNETES | {f"{ENVIRONMENT}spark_executor_cores": "50"}, "512m", "817m"),
    ],
)
def test_the_heap_of_each_jvm_is_that_of_its_tasks(
    given: dict[str, str], driver: str, executor: str | None
) -> None:
    """Of 1,000 partitions: all in one JVM, or shared by executors, whose cores may be given."""
    told = session.build_configuration(load(GOOD | given), 1000)
    assert (told["spark.driver.memory"], told.get("spark.executor.memory")) == (driver, executor)


def test_jars_are_shipped_to_a_standalone_cluster_only() -> None:
    """In pods they are on the image's class path, and there is no folder to write to."""
    assert "spark.jars" in spark_master.build_configuration(
        load(GOOD | {"REO_REPLICATOR_MASTER": "spark://host:7077"}), 1
    )
    for given in ({}, KUBERNETES):
        told = spark_master.build_configuration(load(GOOD | given), 1)
        assert "spark.jars" not in told
        assert "spark-sql-kafka" in told["spark.driver.extraClassPath"]


@pytest.mark.usefixtures("empty_jars")
def test_the_jar_of_msk_is_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """On no class path without AWS_MSK_IAM. With it: behind Spark's own jars in the driver and in
    pods, and shipped to a standalone cluster.
    """
    names = {}
    for is_installed in (False, True):
        monkeypatch.setattr(msk_iam, "is_installed", lambda found=is_installed: found)
        names[is_installed] = connector_jars.read_checksums().keys()
    (only_where_it_is_installed,) = names[True] - names[False]
    assert Path(only_where_it_is_installed).match(connector_jars.MSK)
    jar = connector_jars.get_jars_folder() / "aws-msk-iam-auth-1.0-all.jar"
    jar.touch()
    for name in connector_jars.read_checksums():
        (jar.parent / name).touch()
    monkeypatch.setattr(connector_jars, "MSK", jar.name)
    monkeypatch.setattr(connector_jars, "NOT_OF_SPARK", (*connector_jars.NOT_OF_SPARK, jar.name))
    iam = {
        "REO_SOURCE_SECURITY_PROTOCOL": "SASL_SSL",
        "REO_SOURCE_SASL_MECHANISM": "AWS_MSK_IAM",
        "REO_SOURCE_SASL_AWS_REGION": "eu-west-3",
    }
    places = []
    for given in ({}, KUBERNETES, {"REO_REPLICATOR_MASTER": "spark://host:7077"}):
        told, plain = (
            [spark_master.build_environment(loaded), spark_master.build_configuration(loaded, 1)]
            for loaded in (load(GOOD | given | iam), load(GOOD | given))
        )
        assert jar.name not in str(plain)
        places.append([name for each in told for name, text in each.items() if jar.name in text])
    assert places == [
        ["SPARK_DIST_CLASSPATH"],
        ["SPARK_DIST_CLASSPATH", "spark.executorEnv.SPARK_DIST_CLASSPATH"],
        ["spark.jars"],
    ]


def test_only_a_cluster_needs_an_address_of_this_host() -> None:
    """Its executors call the driver; in local mode nobody does."""
    assert not any(
        spark_master.build_environment(load(GOOD | given))
        for given in ({"REO_REPLICATOR_MASTER": "spark://host:7077"}, KUBERNETES)
    )
