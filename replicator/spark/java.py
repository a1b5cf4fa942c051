"""The Java of stage one: the one that Spark's own scripts choose (`bin/spark-class`), so what is
checked is what runs.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess

from common.errors import SettingsInvalid

VERSIONS = ("17", "21")
"""The versions that Spark 4.2 supports and reo is tested with."""
MODULE = "jdk.incubator.vector"
"""Spark's launcher adds it to every JVM."""


def get_command() -> str:
    """`java` of JAVA_HOME if that is set, else of PATH."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def find_version() -> str:
    """Its version; SettingsInvalid when stage one cannot run on it, or not as this user."""
    _check_user_name()
    command = get_command()
    try:
        modules = subprocess.run(
            [command, "--list-modules"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        ).stdout
    except OSError:
        modules = ""
    version = next(iter(re.findall(r"^java\.base@(.*)$", modules, re.MULTILINE)), "")
    if version.split(".")[0] in VERSIONS and MODULE in modules:
        return version
    place, remedy = (
        ("on PATH", "put another one on PATH")
        if command == "java"
        else (f"of JAVA_HOME ({command})", "correct or unset JAVA_HOME")
    )
    missing_module = "" if MODULE in modules else f" without {MODULE}"
    description = (
        f"the java {place} is {version}{missing_module}" if version else f"no java {place} runs"
    )
    raise SettingsInvalid(
        f"stage one needs Java {' or '.join(VERSIONS)}, and {description}",
        f"Install the package openjdk-17-jre-headless or openjdk-21-jre-headless, or {remedy}",
    )


def _check_user_name() -> None:
    """SettingsInvalid when this user has none: Hadoop, which Spark logs in with, needs it, and Java
    does not find a home either.
    """
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise SettingsInvalid(
            f"stage one's Spark needs a name of its user: user id {os.geteuid()} has none here",
            "Add it to /etc/passwd, or install libnss-unknown, as reo's image does",
        ) from None
