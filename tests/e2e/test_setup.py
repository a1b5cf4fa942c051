"""`reo setup`: jars come by checksum or not at all, the sink is compiled for the Spark that is
there, the right Java is asked for, and it is said who does stage two's work.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyspark
import pytest
from py4j.protocol import Py4JJavaError

from common.errors import SettingsInvalid, StageFailed
from deduplicator import compiled_path
from reo import check, cli, setup_spark
from reo.service.supervisor import Supervisor
from replicator.runs import end_reasons
from replicator.spark import class_archive, connector_jars, java, sink_jar
from tests.harness.java import jvm
from tests.harness.kafka import ROOT, until
from tests.unit.reo.test_startup import SETTINGS
from tools.demo import fair_share

JARS = ROOT / "jars" / "spark"
STAGE_ONE = check.Start(SETTINGS, ("replicator",))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the jars are to go; it is not there yet."""
    monkeypatch.setenv(connector_jars.VARIABLE, str(tmp_path / "data" / "jars"))
    return tmp_path / "data" / "jars"


def test_jars_come_once(folder: Path) -> None:
    """All of them, from a folder; what is right is left alone, what is not is replaced."""
    names = list(connector_jars.read_checksums())
    others = [name for name in names if name.startswith(("ecj-", "aws-msk-iam-auth-"))]
    assert len(others) == 2
    assert connector_jars.install_jars(JARS) == names
    assert connector_jars.install_jars(JARS) == []
    (folder / names[0]).write_bytes(b"another file")
    assert connector_jars.install_jars(JARS) == [names[0]]
    sink = sink_jar.build(folder)
    (folder / "reo-sink-0123456789ab.jar").write_bytes(b"of another version")
    (folder / "of-an-operator.jar").write_bytes(b"")
    assert list(check.run_checks(STAGE_ONE, "before clusters")) == []
    jars = connector_jars.list_jars()
    assert {jar.name for jar in jars} == {*names, sink.name, "of-an-operator.jar"} - {*others}
    assert all((folder / name).read_bytes() == (JARS / name).read_bytes() for name in names)
    assert len(list(folder.iterdir())) == len(jars) + 3, "nothing else is left"


def test_a_jar_with_another_checksum_is_refused(folder: Path, tmp_path: Path) -> None:
    """Nothing of it gets into the folder, and the message names it."""
    shutil.copytree(JARS, tmp_path / "mirror", ignore=shutil.ignore_patterns("*.jsa"))
    wrong = next(iter(connector_jars.read_checksums()))
    with (tmp_path / "mirror" / wrong).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(
        StageFailed, match=rf"^{wrong} from .*mirror: not the file whose checksum reo has"
    ):
        connector_jars.install_jars(tmp_path / "mirror")
    assert list(folder.iterdir()) == []


def test_missing_jars_are_named_with_the_command(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the service, by `reo check`, and by `reo setup` where the folder that it was given lacks
    one.
    """
    with pytest.raises(
        SettingsInvalid, match=r"jars lacks .*commons-pool2\S+, .*: run `reo setup`"
    ):
        connector_jars.list_jars()
    connector_jars.install_jars(JARS)
    with pytest.raises(SettingsInvalid, match=r"jars lacks reo-sink-\S+ of stage one: run"):
        connector_jars.list_jars()
    shutil.rmtree(folder)
    (finding,) = check.run_checks(STAGE_ONE, "before clusters")
    assert (finding.level, finding.about, finding.exit_code) == ("error", "stage one", 2)
    assert "run `reo setup`" in finding.seen
    assert cli.main(["setup", "--from", str(tmp_path / "nowhere")]) == SettingsInvalid.exit_code
    assert f"cannot be put into {folder}: {tmp_path}/nowhere/" in capsys.readouterr().err


def test_an_installed_reo_keeps_them_in_the_users_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XDG_DATA_HOME if it is absolute, as the specification says, else ~/.local/share; a checkout
    has its own folder.
    """
    monkeypatch.delenv(connector_jars.VARIABLE, raising=False)
    assert connector_jars.get_jars_folder() == JARS
    monkeypatch.setattr(connector_jars, "PACKAGES", tmp_path)
    (tmp_path / "reo-1.0.dist-info").mkdir()
    monkeypatch.setenv("HOME", "/home/somebody")
    for data_home, base in (
        ("/data", "/data"),
        ("relative", "/home/somebody/.local/share"),
        ("", "/home/somebody/.local/share"),
    ):
        monkeypatch.setenv("XDG_DATA_HOME", data_home)
        assert connector_jars.get_jars_folder().parent == Path(base) / "reo"


def write_java(folder: Path, modules: str) -> None:
    """A `java` that has these modules."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "java").write_text(f"#!/bin/sh\nprintf '%s\\n' {modules}\n")
    (folder / "java").chmod(0o755)


@pytest.mark.parametrize(
    ("modules", "found"),
    [
        ("java.base@11.0.2", "is 11.0.2"),
        ("java.base@17.0.1", "is 17.0.1 without jdk.incubator.vector"),
    ],
)
def test_another_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: str, found: str
) -> None:
    """And it is said which one was found; none at all is said too."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsInvalid, match=r"no java on PATH runs\. Install the package"):
        java.find_version()
    write_java(tmp_path, modules)
    with pytest.raises(SettingsInvalid, match=f"the java on PATH {found}"):
        java.find_version()


def test_the_java_that_is_checked_is_sparks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAVA_HOME comes before PATH, also where nothing is there; check and start look at the same
    one, and the start ends before it asks a cluster anything.
    """
    write_java(tmp_path / "path", "java.base@17.0.1 jdk.incubator.vector@17.0.1")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    for words in (f"no java of JAVA_HOME .{tmp_path}/home/bin/java. runs. ", "JAVA_HOME .* is 25 "):
        with pytest.raises(SettingsInvalid, match=words):
            java.find_version()
        (finding,) = check.run_checks(STAGE_ONE, "before clusters")
        assert re.search(words, finding.seen)
        supervisor = Supervisor(SETTINGS, ("replicator",), lambda: False)
        with pytest.raises(SettingsInvalid, match=words):
            supervisor.run()
        write_java(tmp_path / "home" / "bin", "java.base@25")
    write_java(tmp_path / "home" / "bin", "java.base@21.0.2 jdk.incubator.vector@21.0.2")
    assert java.find_version() == "21.0.2"


def test_a_user_without_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that OpenShift has made up: Spark would not start, again and again."""
    monkeypatch.setattr(os, "geteuid", lambda: 2**31)
    with pytest.raises(SettingsInvalid, match=f"user id {2**31} has none here. Add it to"):
        java.find_version()


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    """One line, 130, no traceback; here it waits for java."""
    (tmp_path / "java").write_text(f"#!/bin/sh\ntouch {tmp_path / 'waits'}\nexec sleep 60\n")
    (tmp_path / "java").chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "reo", "setup"],
        cwd=ROOT,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    until((tmp_path / "waits").exists, "it waits for java")
    process.send_signal(signal.SIGINT)
    assert fair_share.communicate(process, 30)[1] == "reo setup: interrupted\n"
    assert process.returncode == 130


def test_who_does_the_work_of_stage_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library Python does it, and what to do about that is said."""
    monkeypatch.setattr(compiled_path, "load_library", compiled_path.load_library.__wrapped__)
    assert setup_spark.describe_compiled_path().startswith("yes")
    monkeypatch.setattr(compiled_path, "FOLDER", tmp_path)
    assert setup_spark.describe_compiled_path().startswith("no: Python does the work of stage two")
    assert "install gcc" in setup_spark.describe_compiled_path()


def test_an_archive_that_does_not_fit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`reo setup` creates another one then: the JVM says whether it can map this one."""
    assert class_archive.is_current()
    path = class_archive.build_class_path()
    monkeypatch.setattr(class_archive, "build_class_path", lambda: path.partition(":")[2])
    assert not class_archive.is_current()


def test_the_sinks_jar_is_the_same_wherever_it_is_made(folder: Path) -> None:
    """And it is the one that `make setup` has made here."""
    connector_jars.install_jars(JARS)
    jar = sink_jar.build(folder)
    assert jar.read_bytes() == (JARS / jar.name).read_bytes()


def test_another_source_or_spark_is_another_jar(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And another folder of an installed reo. What cannot be compiled is said, and nothing is
    left.
    """
    names = {sink_jar.compute_name()}
    monkeypatch.setattr(sink_jar, "_get_spark_version", lambda: "4.3.0")
    names.add(sink_jar.compute_name())
    shutil.copytree(sink_jar.SOURCES, tmp_path / "sink")
    monkeypatch.setattr(sink_jar, "SOURCES", tmp_path / "sink")
    with (tmp_path / "sink" / "EnvelopeSink.java").open("a") as source:
        source.write("class Broken extends org.apache.spark.Unknown {}\n")
    names.add(sink_jar.compute_name())
    assert len(names) == 3
    connector_jars.install_jars(JARS)
    with pytest.raises(StageFailed, match=r"cannot be compiled for Spark 4\.3\.0: (.|\n)*Unknown"):
        sink_jar.build(folder)
    assert {path.name for path in folder.iterdir()} == set(connector_jars.read_checksums())


def test_a_sink_for_another_spark_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor can have another Spark than the driver: the task fails by name, and the operator
    is told.
    """
    connector_jars.install_jars(JARS)
    monkeypatch.setattr(sink_jar, "_get_spark_version", lambda: "4.1.0")
    jar = sink_jar.build(folder)
    spark = Path(pyspark.__file__).parent / "jars" / "*"
    with jvm(f"{jar}:{spark}") as java:
        with pytest.raises(Py4JJavaError) as failed:
            java.reo.EnvelopeSink().getTable(None, None, {})
        said = str(failed.value)
    message = f"reo's sink was compiled for Spark 4.1.0, and this is Spark {pyspark.__version__}"
    query = cast(Any, SimpleNamespace(isActive=False, exception=lambda: ValueError(said)))
    with pytest.raises(SettingsInvalid, match=message):
        end_reasons.find_end_event(query)
