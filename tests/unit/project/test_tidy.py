"""Rules of this repository that no linter knows."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from common import clock
from tests.harness.module_checks import check_each, format_path

ROOT = Path(__file__).parents[3]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES_MAX, FUNCTION_LINES_MAX = 500, 60
TOOLS = {"tools", "tests"}
"""What verifies or documents the service, and is not installed."""
FORBIDDEN = {
    "common": {"replicator", "deduplicator", "reo", "pyspark"} | TOOLS,
    "replicator": {"deduplicator", "reo"} | TOOLS,
    "deduplicator": {"replicator", "reo", "pyspark"} | TOOLS,
    "reo": {"pyspark"} | TOOLS,
    "tools/simulator": {"tests", "pyspark"},
    "tools/demo": {"tests", "pyspark"},
    "tools/bench": {"pyspark"},
    "tools/faults": {"replicator", "pyspark"},
    "tools/fuzz": {"replicator", "reo", "tools/bench", "tests", "pyspark"},
    "tools/reference": {
        "replicator",
        "deduplicator",
        "tools/bench",
        "tools/faults",
        "tools/fuzz",
        "tests",
        "pyspark",
    },
}
"""Packages that a package must not import. `reo` sees both stages."""
MODULES = sorted(path for package in FORBIDDEN for path in (ROOT / package).rglob("*.py"))
OF_THE_MACHINE = {
    "time",
    "threading",
    "_thread",
    "random",
    "secrets",
    "uuid",
    "sched",
    "asyncio",
    "multiprocessing",
    "concurrent.futures",
}
"""What `common.clock` stands before. Of the last one all but `Future`, which clients answer
with.
"""
ASK_THE_MACHINE_ITSELF = {
    "reo/interrupt.py": {"threading", "time"},  # a signal of the operating system's own
    "common/clock.py": {"time", "threading", "secrets", "concurrent.futures"},
    # a signal interrupts the real main thread
    "deduplicator/user_call_timeout.py": {"time", "threading"},
    "replicator/spark/session.py": {"threading"},  # of the real JVM
    "common/kafka/client_watch.py": {"threading"},  # real clients are closed in other threads
    "reo/service/child.py": {"threading"},  # of a pipe from a real process
    "reo/service/supervisor.py": {"threading"},  # these are joined
    "reo/service/health.py": {"threading", "time"},  # of a real port
    "reo/service/startup.py": {"multiprocessing"},  # for what can abort
    # of a command that reads with several processors
    "reo/compare/parallel.py": {"multiprocessing"},
}
SERVICE = [
    path
    for path in MODULES
    if str(path.relative_to(ROOT)).startswith(("common/", "replicator/", "deduplicator/", "reo/"))
]
"""What a simulated process can run, and the command line."""


@functools.cache
def tree(path: Path) -> ast.Module:
    """The module, parsed once for all tests: parsing is most of what they do."""
    return ast.parse(path.read_text())


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of a module."""
    return (
        node
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


NEEDED_BY = {
    "unit": ("unit",),
    "simulation": ("unit", "simulation"),
    "broker": ("unit", "broker"),
    "e2e": ("unit", "broker", "e2e"),
}
"""The kinds of tests that need no more than this kind."""


def list_test_imports(path: Path) -> Iterator[str]:
    """The folders of `tests` that a module imports from, anywhere in it."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tests"):
            names = [alias.name for alias in node.names] if node.module == "tests" else []
            yield from names or [str(node.module).split(".")[1]]


def name_package(parts: Sequence[str]) -> str:
    """The package of a module, of a path or of an import; each of the tools is one."""
    return "/".join(parts[: 2 if parts[0] == "tools" and len(parts) > 1 else 1])


def list_imports(path: Path) -> Iterator[str]:
    """The packages that a module imports, anywhere in it."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (name_package(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{format_path(path)} has a relative import"
            yield name_package(str(node.module).split("."))


@check_each([*MODULES, *TESTS])
def test_modules_are_short(path: Path) -> None:
    """No module over 500 lines, no function over 60. The rule of a module is one noun; this is the
    limit.
    """
    assert len(path.read_text().splitlines()) <= LINES_MAX
    long = [
        function.name
        for function in functions(path)
        if (function.end_lineno or 0) - function.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert long == []


@check_each(TESTS)
def test_tests_of_one_kind_need_no_other_kind(path: Path) -> None:
    """They import from the harness, and from kinds that need no more than they do."""
    kind = path.relative_to(ROOT / "tests").parts[0]
    assert set(list_test_imports(path)) <= {"harness", "conftest", *NEEDED_BY.get(kind, ())}


@check_each(MODULES)
def test_imports_go_one_way(path: Path) -> None:
    """The arrows are replicator → common ← deduplicator, never across; Spark under replicator/
    only; reo sees all, nobody sees reo.
    """
    imported = set(list_imports(path))
    if "tools" in FORBIDDEN[(package := name_package(path.relative_to(ROOT).parts))]:
        assert not [name for name in imported if name.startswith("tools")]
    assert imported & FORBIDDEN[package] == set()


def find_machine_modules(path: Path) -> set[str]:
    """The modules of `OF_THE_MACHINE` that this one imports; `datetime.now` and its like stand for
    a clock too.
    """
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} != {
            "Future"
        }:
            found.add(str(node.module))
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in ("now", "utcnow", "today", "urandom")
            and isinstance(node.value, ast.Name)
        ):
            found |= (
                {"time"}
                if node.value.id in ("datetime", "date")
                else {"random"}
                if node.value.id == "os"
                else set()
            )
    return found & OF_THE_MACHINE


def test_a_process_asks_the_machine_in_one_place() -> None:
    """Clocks, sleep, chance and threads are `common.clock`'s, so that a simulator can run the
    service's own processes; the exceptions are named.
    """
    found = {format_path(path): find_machine_modules(path) for path in SERVICE}
    assert {name: modules for name, modules in found.items() if modules} == ASK_THE_MACHINE_ITSELF


@check_each(SERVICE)
def test_the_clock_is_called_and_never_kept(path: Path) -> None:
    """A function of `common.clock` that is kept, as a default say, is the real one in a simulated
    process too.
    """
    calls = {id(node.func) for node in ast.walk(tree(path)) if isinstance(node, ast.Call)}
    names = {function.__name__ for function in clock.FUNCTIONS}
    kept = [
        node.attr
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr in names) == ("clock", True)
        and id(node) not in calls
    ]
    imported = [
        node.module
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.module == "common.clock"
    ]
    assert (kept, imported) == ([], [])


@check_each(SERVICE)
def test_clients_are_made_in_one_place(path: Path) -> None:
    """A client of confluent-kafka is made by `common.kafka.clients` alone, which a simulator can
    give others to: nobody calls one of its classes.
    """
    calls = [node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    called = {
        call.id if isinstance(call, ast.Name) else call.attr
        for call in calls
        if isinstance(call, ast.Name | ast.Attribute)
    }
    assert not called & {"Consumer", "Producer", "AdminClient"}


@check_each(SERVICE)
def test_no_text_is_in_the_encoding_of_the_locale(path: Path) -> None:
    """A file, and what another program says, is UTF-8 wherever the service runs."""
    found = []
    for call in (node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        keywords = {keyword.arg for keyword in call.keywords}
        modes = {word.value for word in call.args if isinstance(word, ast.Constant)}
        if (
            name in ("read_text", "write_text")
            or keywords & {"text", "universal_newlines"}
            or (name in ("open", "fdopen") and isinstance(call.func, ast.Name))
            or (name == "NamedTemporaryFile" and "wb" not in modes)
        ) and "encoding" not in keywords:
            found.append(f"line {call.lineno}: {name}")
    assert found == []


def test_no_file_speaks_of_what_is_not_in_the_repository() -> None:
    """What was handed over beside the repository is not there for a reader."""
    words = b"../" + b"shared"
    skipped = {"jars", "__pycache__"}
    speaking = [
        format_path(path)
        for path in ROOT.rglob("*")
        if path.is_file()
        and not skipped & set(path.parts)
        and not any(
            part.startswith(".") and part not in (".ci", ".github") and path.name != part
            for part in path.relative_to(ROOT).parts
        )
        and path.stat().st_size < 5_000_000
        and words in path.read_bytes()
    ]
    assert speaking == []
