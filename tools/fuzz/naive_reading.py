"""What a frontier is, read naively: with this, what the parser accepts is compared. (The parser of
envelopes is compared with the C function: `fuzz.compiled_forward`.)
"""

from __future__ import annotations

from typing import Any

import orjson

from common import frontier as frontiers

INT64_MAX = 2**63 - 1


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


def _is_move(field: object) -> bool:
    return field is None or (
        isinstance(field, list)
        and len(field) == 3
        and _is_int(field[0], 0)
        and field[0] < frontiers.TIME_MS_END
        and isinstance(field[1], str)
        and _is_int(field[2], 0)
    )


def is_frontier(text: str) -> bool:
    """Whether this text is a frontier of a version that can be read."""
    tree = _json(text) if len(text) <= frontiers.BYTES_MAX else {}
    last = tree.get("r")
    has_last = last is None or (
        isinstance(last, list)
        and len(last) == 3
        and _is_int(last[0], 0)
        and isinstance(last[1], str)
        and isinstance(last[2], bool)
    )
    return (
        _is_int(tree.get("v"), 1)
        and tree["v"] <= 2
        and all(_is_int(tree.get(name), -1) for name in "fecdn")
        and (tree.get("g") is None or _is_int(tree["g"], -1))
        and has_last
        and all(isinstance(tree.get(name), str) for name in "it")
        and isinstance(tree.get("w"), str | None)
        and (tree.get("k") is None or tree["k"] is True)
        and _is_move(tree.get("mv"))
    )
