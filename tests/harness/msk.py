"""Brokers that take the tokens of Amazon MSK with IAM, for a region of their own, and refuse all
others (`broker_java/MskValidator.java`); and ways to have tokens that are over soon.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

from tests.harness.broker_classes import compile_classes
from tests.harness.kafka import ROOT, UNFENCED, Cluster
from tests.harness.secured import OAUTH, Certificates
from tools.demo.broker import Broker, free_port

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "s3cr3t/of+the=key",
    "AWS_SESSION_TOKEN": "t0ken-of+the/session==",
}
PYTHON, JAVA = "aws-msk-iam-sasl-signer-python", "aws-msk-iam-auth"
"""What a token says that signed it."""
PYTHON_S, JAVA_S = 15, 60
"""For how long shortened tokens are good, and not for 15 minutes."""
REAUTHENTICATION_MS = 20_000
"""A connection is good for so long at most, and not longer than its token."""
SITE = f"""
import sys
try:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
except ImportError:
    pass
else:
    MSKAuthTokenProvider.DEFAULT_TOKEN_EXPIRY_SECONDS = {PYTHON_S}
"""


class MskCluster:
    """A single-node cluster whose listener for others takes such tokens."""

    def __init__(self, folder: Path, certificates: Certificates, region: str) -> None:
        port, self.region, self._log = free_port(), region, folder / "tokens"
        self.certificates = certificates
        self.address = f"localhost:{port}"
        broker = Broker(
            folder, ROOT / "jars" / "broker", class_path=(compile_classes(folder / "classes"),)
        )
        plain = f"PLAINTEXT://127.0.0.1:{broker.port}"
        known = {
            "accessKey": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "secretKey": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            "sessionToken": CREDENTIALS["AWS_SESSION_TOKEN"],
            "region": region,
            "log": str(self._log),
        }
        options = " ".join(f'{name}="{value}"' for name, value in known.items())
        mechanism = "listener.name.msk.oauthbearer"
        broker.settings = UNFENCED | {
            "listeners": f"{plain},MSK://{self.address},CONTROLLER://127.0.0.1:{broker.controller_port}",
            "advertised.listeners": f"{plain},MSK://{self.address}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,MSK:SASL_SSL"
            ),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.msk.ssl.keystore.type": "PEM",
            "listener.name.msk.ssl.keystore.location": str(certificates.server),
            f"{mechanism}.sasl.jaas.config": (
                f'{OAUTH} required unsecuredLoginStringClaim_sub="broker" {options};'
            ),
            f"{mechanism}.sasl.server.callback.handler.class": "reo.test.MskValidator",
            f"{mechanism}.connections.max.reauth.ms": str(REAUTHENTICATION_MS),
        }
        self.cluster = Cluster(broker.start().wait())

    def list_tokens(self) -> list[list[str]]:
        """Of each login that was taken: what signed, the region, and when; `refused` and why, of
        the others.
        """
        return (
            [line.split() for line in self._log.read_text().splitlines()]
            if self._log.exists()
            else []
        )

    def count_tokens(self, signed_by: str) -> int:
        """How many different tokens were taken."""
        return len({time for name, _, time in self.list_tokens() if name == signed_by})


def write_site(folder: Path) -> Path:
    """A folder for PYTHONPATH, with which Python's tokens are over after PYTHON_S."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SITE)
    return folder


def copy_jars(source: Path, folder: Path) -> Path:
    """The jars of stage one; Java's tokens are over after JAVA_S: in the class that signs them the
    constant is patched, of which there is one.
    """
    folder.mkdir()
    for jar in source.iterdir():
        if jar.is_file() and not jar.name.startswith(JAVA):
            (folder / jar.name).symlink_to(jar)
    (library,) = source.glob(f"{JAVA}-*.jar")
    signer = "software/amazon/msk/auth/iam/internals/AWS4SignedPayloadGenerator.class"
    minutes, fewer = (b"\x05" + struct.pack(">q", number) for number in (15, JAVA_S // 60))
    with (
        zipfile.ZipFile(library) as original,
        zipfile.ZipFile(folder / library.name, "w") as patched,
    ):
        for name in original.namelist():
            content = original.read(name)
            if name == signer:
                assert content.count(minutes) == 1
                content = content.replace(minutes, fewer)
            patched.writestr(name, content)
    return folder
