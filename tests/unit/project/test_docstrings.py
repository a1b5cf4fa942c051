"""What a docstring of the service names exists, and a stage's names its modules."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.settings.schema import BY_NAME
from tests.harness.module_checks import check_each, format_path

ROOT = Path(__file__).parents[3]
PACKAGES = ("common", "replicator", "deduplicator", "reo")
MODULES = sorted(
    path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__main__.py"  # they run when they are imported
)
REFERENCE = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
FILE = re.compile(r"(?<![\w/.*-])((?:[a-z_]+/)*[a-z_]+\.(?:py|c))\b")


def docstrings(path: Path) -> Iterator[str]:
    """Of the module, its classes, functions and attributes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def exists(dotted_name: str, module: str) -> bool:
    """Whether a name that begins with a package or module of ours, or with a name of this module,
    leads to something.
    """
    first, *rest = dotted_name.split(".")
    here = importlib.import_module(module)
    if first in PACKAGES:
        found = importlib.import_module(first)
    elif hasattr(here, first):
        found = getattr(here, first)
    else:
        stems = [path for path in MODULES if path.stem == first]
        if not stems:
            return True  # of a library, or a setting
        found = importlib.import_module(format_path(stems[0])[:-3].replace("/", "."))
    for name in rest:
        try:
            found = getattr(found, name, None) or importlib.import_module(
                f"{found.__name__}.{name}"
            )
        except (ImportError, AttributeError):
            return name in getattr(found, "__annotations__", {}) or hasattr(builtins, first)
    return True


@check_each(MODULES)
def test_what_a_docstring_names_exists(path: Path) -> None:
    """Files by their name, and modules, classes and functions by their dotted name."""
    module = format_path(path)[:-3].replace("/", ".").removesuffix(".__init__")
    texts = list(docstrings(path))
    assert [
        name
        for text in texts
        for name in FILE.findall(text)
        if not any((folder / name).exists() for folder in path.parents)
        and not any(format_path(other).endswith("/" + name) for other in MODULES)
    ] == []
    assert [
        name
        for text in texts
        for name in REFERENCE.findall(text)
        if not name.startswith("settings.")
        and not name.endswith((".c", ".py"))
        and name not in BY_NAME
        and not exists(name, module)
    ] == []


@pytest.mark.parametrize("package", ["replicator", "deduplicator"])
def test_a_stage_lists_its_modules(package: str) -> None:
    """The docstring of a stage's package names every module and folder in it."""
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
    expected = {
        path.name + "/" if path.is_dir() else path.name
        for path in (ROOT / package).iterdir()
        if (path.is_dir() and (path / "__init__.py").exists()) or path.suffix == ".py"
    }
    missing = {name for name in expected - {"__init__.py", "__main__.py"} if name not in text}
    assert missing == set()
