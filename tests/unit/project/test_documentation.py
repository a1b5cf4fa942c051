"""The documentation says what the code does: its tables are the code's, its links lead somewhere,
each stop has its page, each feature its test.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from prometheus_client.metrics import MetricWrapperBase

from common.settings.schema import SETTINGS
from deduplicator.postgresql.session import FRONTIER_TABLE
from reo import commands
from reo.version import VERSION
from tests.harness.library import LIBRARY
from tools.reference import formats, interfaces, pages, tables

ROOT = pages.ROOT
FEATURES = ROOT / "docs" / "features.md"
STOPS = ROOT / "docs" / tables.STOPS
PROSE = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SAYS = ("**What happened.**", "**How to see it.**", "**What to do.**")
NO_SETTINGS = {
    "REO_SETTINGS_FILE",
    "REO_JARS",
    "REO_TEST_SEED",
    "REO_TEST_ORDER",
    "REO_DEDUPLICATOR_WOKERS",
}
"""Where the settings and the jars are, the tests' own, and an example of a typing error."""
NOT_YET = ("not yet", "not yet tested")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
PACKAGES = (
    "common",
    "replicator",
    "deduplicator",
    "reo",
    "tools",
    "tests",
)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def format_path(path: Path) -> str:
    """The path as a test's name."""
    return str(path.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub makes anchors of them."""
    headings = HEADING.findall(FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(page: Path, heading: str) -> str:
    """What stands under a heading of the second level."""
    return re.split(
        r"^## ", page.read_text().split(f"\n## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE
    )[0]


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=format_path)
def test_no_page_has_a_path_of_a_machine(page: Path) -> None:
    """A page names no folder of the machine on which it was written."""
    assert not re.findall(r"[\s\"'`](?:/home|/root|/tmp|/work)/\S+", page.read_text())


def test_nothing_that_is_made_from_the_code_is_out_of_date() -> None:
    """Pages, the chart's version and schema, and the links in the alert rules."""
    assert pages.find_outdated() == {}, "run `make reference`"


def test_there_is_one_version() -> None:
    """What a release is made of has it from `reo.version`; where it is an example it is the newest,
    and the changelog has a section for it.
    """
    assert re.search(
        rf"^## \[{re.escape(VERSION)}\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    for path in (
        ROOT / "deploy" / "kubernetes" / "example" / "kustomization.yaml",
        ROOT / "Dockerfile",
        ROOT / "docs" / "how-to" / "deploy.md",
    ):
        examples = re.findall(r'(?:newTag: "|VERSION=|reo-)(\d+\.\d+\.\d+)', path.read_text())
        assert set(examples) == {VERSION}, path


def test_writing_the_tables_again_changes_nothing_else() -> None:
    """The writer replaces what is between its markers, whatever was there, and is stable."""
    made = {"settings": tables.settings_table, "exit codes": tables.exit_codes_table}
    page = (
        "a\n<!-- settings -->\nold | \\1\n<!-- /settings -->\nb\n<!-- exit codes --><!-- /exit"
        " codes -->\nc\n"
    )
    once = pages.rewrite_tables(page, made)
    assert pages.rewrite_tables(once, made) == once
    assert [line for line in once.splitlines() if not line.startswith(("|", "<!--"))] == [
        "a",
        "b",
        "c",
    ]
    assert tables.settings_table() in once
    with pytest.raises(ValueError, match="settings"):
        pages.rewrite_tables("a page without markers", made)


def test_a_field_that_nobody_explains_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A format that grows a field cannot be documented without it."""
    monkeypatch.delitem(formats.ENVELOPE, "last position")
    with pytest.raises(ValueError, match=r"head is .* base timestamp, records$"):
        formats.envelope_table()


def test_metrics_are_made_where_the_table_looks() -> None:
    """No other module of the service makes one."""
    looked_at = {Path(str(module.__file__)) for module in interfaces.METRIC_MODULES}
    making = {
        path
        for package in ("common", "replicator", "deduplicator", "reo")
        for path in (ROOT / package).rglob("*.py")
        if re.search(
            r"from prometheus_client import .*\b(Counter|Gauge|Histogram|Summary|Info|Enum)\b",
            path.read_text(),
        )
    }
    assert making == looked_at


def test_every_metric_that_a_page_names_is_there() -> None:
    """The names on all pages are metrics of the code, as Prometheus is shown them."""
    there = {
        sample
        for module in interfaces.METRIC_MODULES
        for metric in vars(module).values()
        if isinstance(metric, MetricWrapperBase)
        for sample in (metric._name, f"{metric._name}_total")
    }
    read = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in read for name in re.findall(r"`(reo_[a-z_]+)", page.read_text())}
    assert len(named) > 30
    assert {name.removesuffix("_bucket") for name in named} <= there | {FRONTIER_TABLE}


@pytest.mark.parametrize("page", PROSE, ids=format_path)
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link names a file that is there, and, behind a #, one of its headings."""
    dead = []
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def is_in_the_code(name: str) -> bool:
    """Whether a path is there, or a dotted name: its module's file, and in it the rest of the name
    as a word.
    """
    if "/" in name:
        return (ROOT / name).exists()
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        module = (
            path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
        )
        if module.exists():
            text = module.read_text()
            return all(re.search(rf"\b{part}\b", text) for part in parts[length:])
    return False


@pytest.mark.parametrize(
    "page", [page for page in PROSE if page.name != "CHANGELOG.md"], ids=format_path
)
def test_files_and_symbols_in_the_prose_exist(page: Path) -> None:
    """What stands as code on a page, and is the path or the dotted name of something of ours, is
    there. Settings look like modules and are none.
    """
    settings = {setting.name for setting in SETTINGS}
    spans = {span.partition("::")[0] for span in CODE.findall(FENCED.sub("", page.read_text()))}
    ours = {
        span
        for span in spans
        if re.fullmatch(rf"({'|'.join(PACKAGES)})([./][\w.-]+)+", span) and "…" not in span
    }
    assert {
        name
        for name in ours - settings
        if not any(name.startswith(f"{setting}.") for setting in settings)
        and not is_in_the_code(name)
    } == set()


@pytest.mark.parametrize("kind", tables.list_stop_errors(), ids=lambda kind: kind.__name__)
def test_each_stop_says_what_to_do(kind: type) -> None:
    """A heading with its code and name, and under it what happened, how to see it, what to do, in
    this order.
    """
    text = section(STOPS, f"{kind.exit_code} {kind.__name__}")  # type: ignore[attr-defined]
    assert [
        paragraph
        for paragraph in re.findall(r"^\*\*[^*]+\*\*", text, re.MULTILINE)
        if paragraph in SAYS
    ] == [*SAYS]


def test_no_stop_is_explained_that_there_is_not() -> None:
    """A code that went leaves no heading behind."""
    headings = {heading for heading in HEADING.findall(STOPS.read_text()) if heading[0].isdigit()}
    assert headings == {f"{kind.exit_code} {kind.__name__}" for kind in tables.list_stop_errors()}


def features() -> list[str]:
    """The rows of the table of features."""
    table = FEATURES.read_text().split("<!-- features -->")[1].split("<!-- /features -->")[0]
    return [
        line
        for line in table.splitlines()
        if line.startswith("| ") and not line.startswith("| feature |")
    ]


@pytest.mark.parametrize("row", features(), ids=lambda row: row.split("|")[1].strip())
def test_each_feature_has_its_test(row: str) -> None:
    """The last column links tests that are there, by file and function, or says that there is none
    yet.
    """
    cell = row.rstrip("| ").rpartition(" | ")[2].strip()
    if cell in NOT_YET:
        return
    found = re.findall(r"\[`(\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", cell)
    assert "<br>".join(f"[`{name}`](../{file})" for name, file in found) == cell
    for name, file in found:
        assert name in {
            node.name
            for node in ast.parse((ROOT / file).read_text()).body
            if isinstance(node, ast.FunctionDef)
        }, f"{file} has no {name}"


@pytest.mark.parametrize("page", PROSE, ids=format_path)
def test_settings_and_commands_in_the_prose_exist(page: Path) -> None:
    """Each `REO_…` is a variable that reo takes, an option's included, and each `reo …` a
    command.
    """
    known = {
        name
        for setting in SETTINGS
        for name in (
            *setting.environment,
            *([setting.file_variable] if setting.kind == "secret" else ()),
        )
    }
    beginnings = tuple(
        f"REO_{setting.name.upper().replace('.', '_')}_"
        for setting in SETTINGS
        if setting.kind == "options"
    )
    used = set(re.findall(r"\bREO_[A-Z0-9_]*[A-Z0-9]\b", page.read_text()))
    assert {name for name in used - known - NO_SETTINGS if not name.startswith(beginnings)} == set()
    words = {words.split()[0] for words, _, _ in interfaces.list_commands(commands.build_parser())}
    assert set(re.findall(r"`reo ([a-z]+)", page.read_text())) <= words


def test_the_program_in_the_reference_is_the_one_that_is_tested() -> None:
    """The lines of Python that call both stages."""
    assert LIBRARY.strip() in (ROOT / "docs" / "reference.md").read_text()
