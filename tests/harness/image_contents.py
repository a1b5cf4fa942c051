"""What the image is: its labels, and the size of its parts."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.harness.containers import IMAGE, docker

PARTS = [
    "/usr/lib/jvm",
    "/opt/reo/jars/spark/spark.jsa",
    "/opt/reo/.venv/lib/python3*/site-packages/pyspark/jars",
    "/opt/reo/.venv",
    "/opt/reo",
    "/usr",
]


def check_contents(check: Callable[[str, bool, object], None]) -> None:
    """Labels and sizes."""
    image = json.loads(docker("image", "inspect", IMAGE).stdout)[0]
    labels = {
        name.rpartition(".")[2]: text
        for name, text in image["Config"]["Labels"].items()
        if name.startswith("org.opencontainers.image.")
    }
    said = (labels.get("title"), labels.get("version"), len(labels.get("revision", "")))
    check("the labels say what it is", said == ("reo", "check", 40), labels)
    print(f"     the image has {image['Size'] / 1e6:.0f} MB, of which in MB:")
    print(
        docker(
            "run",
            "--rm",
            "--entrypoint",
            "sh",
            IMAGE,
            "-c",
            f"for part in {' '.join(PARTS)}; do du -smL $part; done",
        ).stdout
    )
