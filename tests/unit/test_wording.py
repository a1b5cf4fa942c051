"""Names and docstrings of the service: a function begins with a verb, a predicate with `is_` or
`has_`, and what a docstring names exists.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.settings.setting_index import BY_NAME
from tests.harness.module_checks import check_each, format_path

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "replicator", "deduplicator", "reo")
MODULES = sorted(
    path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__main__.py"  # they run when they are imported
)
VERB_WORDS = """
abort accept acquire add adopt advance align allow alter append apply archive ask assess assign
await beat begin bind build calculate call can cancel catch change check choose classify clean
clear close collect commit compare complete compute concat configure connect consume continue
convert copy count create cut decide declare decode define delete deliver describe detect diff
disable discard discover drain draw drop dump empty enable encode end enqueue enter escape
estimate evaluate exclude exit expand explain extract fail feed fetch fill filter find finish
flatten flush follow forget format forward get group grow guard handle has hash have hit identify
ignore import infer initialise insert inspect install invert is join keep kill let list load lock
log look make map mark match measure merge move name normalize note observe on open order override
parse partition pass pause pick plan poll pop prefix prepare print produce put query quote raise
rank reach read reclaim record recover redact refresh refuse register release reload remember
remove rename renew replace report request reset resolve resume retry return roll run save scan
search seek select send serve set shorten should show skip sleep sort spawn spell split start stat
stop store subscribe suggest sum summarize switch sync tabulate take test to track translate try
unlock unwrap update use validate verify wait wake warn watch wrap write
"""
VERBS = set(VERB_WORDS.split())
"""`on_` is a callback's name in Python, `to_` a conversion's."""
NOT_OURS = {
    "main",
    # of `Consumed`, which has the shape of confluent-kafka's message
    *("topic", "partition", "offset", "key", "value", "headers"),
    *("timestamp", "leader_epoch", "error"),
    # of Python's time, argparse, wsgiref, Spark's query
    *("time", "monotonic", "app", "exception", "awaitTermination"),
    # of the protocol for destinations of a user's own (docs/how-to/own-destination.md)
    "last_source_offset",
}
FOREIGN_NAMES = {
    *("send_offsets_to_transaction", "error_cb", "preexec_fn", "echo", "_STATE"),
    *("timestampType", "PartitionLeaderEpoch", "producer_byte_rate", "latest"),
    *("read_committed", "read_uncommitted", "KAFKA_CLUSTERS_SERVICE_HOST", "MAX_PUBLISH"),
    "batch",  # of compiled_path.c
}
"""Names of other programs in docstrings; also those with `FOREIGN_PREFIX`: functions in C,
variables of the environment, metrics and tables.
"""
FOREIGN_PREFIX = re.compile("(rd_kafka|REO|reo)_")
NAME = re.compile(r"(?<!`)`([A-Za-z_]\w*)(?:\(\))?`(?!`)")
REFERENCE = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
FILE = re.compile(r"(?<![\w/.*-])((?:[a-z_]+/)*[a-z_]+\.(?:py|c))\b")


def is_property(function: ast.FunctionDef) -> bool:
    """Whether it is read like an attribute."""
    return any("property" in ast.unparse(each) for each in function.decorator_list)


@check_each(MODULES)
def test_functions_are_verbs(path: Path) -> None:
    """The first word of each function's name is a verb."""
    assert [
        function.name
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        and not (function.name.startswith("__") or is_property(function))
        and function.name not in NOT_OURS
        and function.name.strip("_").split("_")[0] not in VERBS
    ] == []


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


def list_words_of_code(path: Path) -> set[str]:
    """Every word of a module's source text outside of its docstrings."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
    return set(re.findall(r"\w+", ast.unparse(tree)))


@functools.cache
def list_defined_names() -> set[str]:
    """The names of all modules, classes, functions and constants."""
    names = set(dir(builtins)) | {part for path in MODULES for part in (path.stem, *path.parts)}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@check_each(MODULES)
def test_a_name_in_a_docstring_exists(path: Path) -> None:
    """A single name in backticks is a word of this module's code, or is defined in another one."""
    known = list_words_of_code(path) | list_defined_names() | FOREIGN_NAMES
    assert [
        name
        for text in docstrings(path)
        for name in NAME.findall(text)
        if name not in known and not FOREIGN_PREFIX.match(name)
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
