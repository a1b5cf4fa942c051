"""What an origin and a frontier are, read naively: with this, what a parser accepts is compared."""

from __future__ import annotations

from typing import Any

import orjson

from common import frontier as frontiers
from common import origin as origins
from fuzz.messages import Message

INT64_MAX = 2**63 - 1
ORIGIN_BYTES = 54
ORIGIN_FIELDS = {
    (9, 17): 0,
    (17, 21): 0,
    (21, 22): -1,
    (22, 30): 0,
    (30, 38): -INT64_MAX,
    (38, 46): 0,
    (46, 54): 0,
}
"""Where the integers lie in an origin, and their least values."""


def _is_int(value: object, least: int) -> bool:
    """Not a truth value, which Python takes for a number, and not 1.0, which equals one."""
    return type(value) is int and least <= value <= INT64_MAX


def _json(text: bytes | str) -> dict[str, Any]:
    """The object, or one without fields."""
    try:
        tree = orjson.loads(text)
    except ValueError:
        return {}
    return tree if isinstance(tree, dict) else {}


def is_origin(value: bytes | None) -> bool:
    """Whether these bytes are an origin."""
    if value is None or len(value) != ORIGIN_BYTES or value[0] != 1:
        return False
    return _parse_integer(value, 21, 22) <= 1 and all(
        _parse_integer(value, *place) >= least for place, least in ORIGIN_FIELDS.items()
    )


def _parse_integer(value: bytes, begin: int, end: int) -> int:
    return int.from_bytes(value[begin:end], "big", signed=True)


def is_frontier(text: str) -> bool:
    """Whether this text is a frontier of this version."""
    tree = _json(text) if len(text) <= frontiers.BYTES_MAX else {}
    link = tree.get("l")
    linked = link is None or (
        isinstance(link, list) and len(link) == 3 and all(_is_int(number, -1) for number in link)
    )
    hole = tree.get("h", "missing")
    linked = linked and (
        hole is None
        or (
            isinstance(hole, list) and len(hole) == 2 and all(_is_int(number, 0) for number in hole)
        )
    )
    numbers = all(_is_int(tree.get(name), -1) for name in "fecdn")
    last = tree.get("r")
    linked = linked and (
        last is None
        or (
            isinstance(last, list)
            and len(last) == 3
            and _is_int(last[0], 0)
            and isinstance(last[1], str)
            and isinstance(last[2], bool)
        )
    )
    return (
        _is_int(tree.get("v"), 1)
        and tree["v"] == 1
        and numbers
        and linked
        and all(isinstance(tree.get(name), str) for name in "it")
        and all(isinstance(tree.get(name), str | None) for name in "wm")
        and (tree.get("p") is None or _is_int(tree["p"], -1))
        and (tree.get("k") is None or tree["k"] is True)
    )


def is_from_stage_one(message: Message) -> bool:
    """Whether the record has an origin of its partition."""
    headers = message.all_headers
    return bool(
        headers
        and headers[-1][0] == origins.HEADER
        and is_origin(headers[-1][1])
        and _parse_integer(headers[-1][1] or b"", 17, 21) == message.of_partition
    )
