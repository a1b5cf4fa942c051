"""Schema ids in records, and what two registries have under them. With a real registry:
tests/e2e/test_schemas.py; in `reo check`: tests/broker/test_schema_ids.py.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from common.settings.schema import Schemas
from reo.checks import schemas
from tests.harness.registry import frame

AVRO = '{"type": "record", "name": "A", "fields": []}'
USER = "Basic dXNlcjpwYTpzcw=="
"""Of `user` with the password `pa:ss`."""


@pytest.mark.parametrize(
    ("data", "schema_id"),
    [
        (frame(1), 1),
        (frame(100_001, b"more"), 100_001),
        (None, None),
        (b"", None),
        (frame(7, b""), None),
        (b"\x01" + frame(7)[1:], None),
        (frame(0), None),
        (frame(50_000_000), None),
        ((1_700_000_000_000).to_bytes(8, "big"), None),
        (b'{"a": 1}', None),
    ],
)
def test_an_id_is_recognised(data: bytes | None, schema_id: int | None) -> None:
    """A zero, a number that registries give, and data. Eight bytes are a whole number."""
    assert schemas.find_schema_id(data) == schema_id


class _Registry(BaseHTTPRequestHandler):
    """Answers by the path: `/<what>/schemas/ids/<id>`."""

    def do_GET(self) -> None:
        """Answer one request."""
        _, what, *_ = self.path.split("/")
        answers = {
            "avro": (200, {"schema": AVRO}),
            "respelled": (
                200,
                {"schema": json.dumps(json.loads(AVRO), indent=1), "references": []},
            ),
            "other": (200, {"schema": AVRO.replace("A", "B")}),
            "proto": (200, {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}),
            "none": (404, {"error_code": 40403}),
            "list": (200, [1]),
            "guarded": (200 if self.headers["Authorization"] == USER else 401, {"schema": AVRO}),
        }
        code, body = answers[what]
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a server that answers as registries do."""
    with HTTPServer(("127.0.0.1", 0), _Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("source", "destination", "text"),
    [
        ("avro", "respelled", ""),
        ("proto", "proto", ""),
        ("avro", "other", "schema 7 is another one in the destination's registry"),
        ("avro", "proto", "schema 7 is another one in the destination's registry"),
        ("avro", "none", "schema 7 is missing in the destination's registry"),
        ("none", "none", "schema 7 is missing in the source's registry"),
    ],
)
def test_two_registries_are_compared(port: int, source: str, destination: str, text: str) -> None:
    """By what a schema means, not by how it is written out."""
    base = f"http://127.0.0.1:{port}"
    urls = Schemas(source_url=f"{base}/{source}", destination_url=f"{base}/{destination}/")
    assert schemas._compare_schema(urls, 7) == text


def test_a_password_is_sent_and_never_shown(port: int) -> None:
    """User and password of the URL are sent with the first request, percent-decoded; an error names
    the side, the address without them, and what was answered.
    """
    right, wrong = (f"http://{user}@127.0.0.1:{port}" for user in ("user:pa%3Ass", "user:wrong"))
    urls = Schemas(source_url=f"{right}/guarded", destination_url=f"{right}/guarded")
    assert schemas._compare_schema(urls, 7) == ""
    for path, answer in (("guarded", "answers 401"), ("list", "does not answer as expected")):
        urls = Schemas(source_url=f"{right}/guarded", destination_url=f"{wrong}/{path}")
        with pytest.raises(
            OSError, match=f"the destination's registry at http://127.*{answer}"
        ) as caught:
            schemas._compare_schema(urls, 7)
        assert "wrong" not in str(caught.value)
