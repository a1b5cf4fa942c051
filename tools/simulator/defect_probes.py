"""In which schedules a planted defect makes a difference.

The service's own text is run without the defects, and has a probe in the place of each: the probe
evaluates both expressions, the right one and that of the defect, goes on with the right one, and
notes that they differ (weak mutation testing: Howden, IEEE TSE 8(4), 1982). A schedule is
determined by its seed, so one in which they never differ is the same with the defect. Only the
others have to be run with it.

Where a defect is no other expression, but another statement, or would call what may have an effect,
the probe notes that the place was reached.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

PURE_FUNCTIONS = frozenset(
    {"all", "any", "bool", "dict", "frozenset", "int", "len", "list", "max", "min", "range", "set"}
    | {"sorted", "sum", "tuple"}
)
PURE_METHODS = frozenset({"items", "keys", "values"})
"""What the expression of a defect may call while it is only compared; constructors too."""
PROBE = "__probe__"

reached: set[str] = set()
"""The defects that have made a difference since this was cleared."""
reached_by_import: set[str] = set()
"""Those that make a difference when their module is imported: in every schedule."""


def probe(name: str, value: Any = None, becomes: Callable[[], Any] | None = None) -> Any:
    """Stands in the place of a defect. Returns `value`."""
    if name not in reached and (becomes is None or _differs(value, becomes)):
        reached.add(name)
    return value


def _differs(value: Any, becomes: Callable[[], Any]) -> bool:
    try:
        other = becomes()
        return bool(value) != other if isinstance(other, bool) else bool(value != other)
    except Exception:
        return True


def execute(
    text: str, texts_with_defect: Mapping[str, str], file: str, namespace: dict[str, Any]
) -> None:
    """Execute the text of a module with a probe for each defect. `texts_with_defect` are its texts
    with one defect each, by the name of the defect.
    """
    tree = ast.parse(text)
    probes: dict[int, list[tuple[str, ast.expr | None]]] = {}
    for name, text_with_defect in texts_with_defect.items():
        difference = _find_difference(tree, ast.parse(text_with_defect))
        if difference is None:
            reached_by_import.add(name)
        else:
            place, becomes = difference
            probes.setdefault(id(place), []).append((name, becomes))
    with_probes = ast.fix_missing_locations(_ProbeInserter(probes).visit(tree))
    namespace[PROBE] = probe
    reached_before = set(reached)
    exec(compile(with_probes, file, "exec"), namespace)  # noqa: S102  # our own text
    reached_by_import.update(reached - reached_before)


Difference = tuple[ast.expr, ast.expr | None] | tuple[ast.stmt, None]


def _find_difference(right: ast.AST, wrong: ast.AST) -> Difference | None:
    """The expression of `right` in whose place `wrong` has another one, with that one: the largest
    that can be evaluated without an effect, or else the smallest. Or the statement that has to be
    reached. None when the place is neither.
    """
    here = _as_place(right, wrong)
    if here is not None and here[1] is not None:
        return here
    if type(right) is not type(wrong):
        return here
    differing = [
        (getattr(right, name, None), getattr(wrong, name, None))
        for name in right._fields
        if _dump(getattr(right, name, None)) != _dump(getattr(wrong, name, None))
    ]
    if len(differing) != 1:
        return here
    ours, others = differing[0]
    if isinstance(ours, list) and isinstance(others, list):
        return _find_difference_of_lists(ours, others) or here
    if isinstance(ours, ast.AST) and isinstance(others, ast.AST):
        return _find_difference(ours, others) or here
    return here


def _find_difference_of_lists(ours: list[Any], others: list[Any]) -> Difference | None:
    differing = [
        index
        for index, (our, other) in enumerate(zip(ours, others, strict=False))
        if _dump(our) != _dump(other)
    ]
    if len(ours) == len(others) and len(differing) == 1:
        return _find_difference(ours[differing[0]], others[differing[0]])
    if ours and all(isinstance(one, ast.stmt) for one in ours):
        return ours[differing[0] if differing else -1], None
    return None


def _as_place(right: ast.AST, wrong: ast.AST) -> Difference | None:
    """The place of a probe around this expression, or before this statement."""
    if isinstance(right, ast.stmt) and not isinstance(
        right, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    ):
        return right, None
    is_value = isinstance(getattr(right, "ctx", ast.Load()), ast.Load) and not isinstance(
        right, ast.FormattedValue | ast.Starred | ast.Slice
    )
    if isinstance(right, ast.expr) and isinstance(wrong, ast.expr) and is_value:
        return right, wrong if _is_pure(wrong) else None
    return None


def _is_pure(expression: ast.expr) -> bool:
    """Whether it can be evaluated without an effect."""
    return not any(
        isinstance(node, ast.NamedExpr | ast.Yield | ast.Await)
        or (isinstance(node, ast.Call) and not _is_pure_call(node.func))
        for node in ast.walk(expression)
    )


def _is_pure_call(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        return called.attr in PURE_METHODS
    return isinstance(called, ast.Name) and (called.id in PURE_FUNCTIONS or called.id[0].isupper())


def _dump(part: Any) -> str:
    if isinstance(part, list):
        return "[" + ",".join(map(_dump, part)) + "]"
    return ast.dump(part) if isinstance(part, ast.AST) else repr(part)


class _ProbeInserter(ast.NodeTransformer):
    """Puts the probes around expressions and before statements, by the `id` of the node."""

    def __init__(self, probes: Mapping[int, list[tuple[str, ast.expr | None]]]) -> None:
        self.probes = probes

    def visit(self, node: ast.AST) -> Any:
        """The node with its probes, and those of its parts."""
        probes = self.probes.get(id(node), [])
        visited: Any = self.generic_visit(node)
        if isinstance(visited, ast.stmt):
            return [
                *(ast.Expr(_call_probe(ast.Constant(name))) for name, _ in probes),
                visited,
            ]
        for name, becomes in probes:
            parts: list[ast.expr] = [ast.Constant(name), visited]
            if becomes is not None:
                parts.append(ast.Lambda(_no_arguments(), becomes))
            visited = _call_probe(*parts)
        return visited


def _call_probe(*parts: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(PROBE, ast.Load()), list(parts), [])


def _no_arguments() -> ast.arguments:
    return ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
