"""`reo setup`: prepares once what an installed reo needs besides its Python packages: it finds
Java, fetches the jars, compiles stage one's sink, and archives Spark's classes.

It can be repeated at any time, and changes nothing that is already correct. `make setup` of a
checkout and the build of the image call it too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from common import clock
from deduplicator import compiled_path
from replicator.spark import class_archive, connector_jars, java, sink_jar


def run_command(source: str | None) -> int:
    """The sub-command: the jars come from the folder `source`, or from Maven Central."""
    _report("java", java.find_version())
    fetched = connector_jars.install_jars(Path(source) if source else None)
    _report(
        "jars",
        f"{len(fetched)} from {source or 'Maven Central'}" if fetched else "there already",
        connector_jars.get_jars_folder(),
    )
    folder = connector_jars.get_jars_folder()
    sink = folder / sink_jar.compute_name()
    _report("sink", _prepare(sink.exists(), "compiled", lambda: sink_jar.build(folder)), sink)
    is_current = class_archive.is_current()
    archive = _prepare(is_current, "created", class_archive.create_archive)
    _report("archive", archive, class_archive.get_archive_path())
    _report("compiled", describe_compiled_path())
    return 0


def describe_compiled_path() -> str:
    """Whether stage two uses the compiled path; if not, why."""
    try:
        compiled_path.load_library()
    except compiled_path.CompiledPathUnavailable as reason:
        return (
            f"no: Python does the work of stage two, more slowly, with the same results; {reason}"
        )
    return "yes: stage two uses the compiled path"


def _prepare(is_there: bool, done: str, create: Callable[[], object]) -> str:
    """Create what is not there; returns what was done."""
    if is_there:
        return "there already"
    begin_s = clock.monotonic()
    with connector_jars.explain_unwritable():
        create()
    return f"{done} in {clock.monotonic() - begin_s:.0f} s"


def _report(name: str, text: str, path: Path | None = None) -> None:
    print(f"{name:10}{text}{f': {path}' if path else ''}", flush=True)
