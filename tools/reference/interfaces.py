"""The interfaces for operators: the commands, from the parser, and the metrics, from the metric
objects.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from types import ModuleType

from prometheus_client.metrics import MetricWrapperBase

from common import metrics
from common.liveness import REASONS
from reo import commands
from reo.progress import heartbeat
from reo.service import health

METRIC_MODULES: tuple[ModuleType, ...] = (metrics, health, heartbeat)
"""The modules that have metrics; a test looks for others."""
LABEL_VALUES: dict[str, dict[str, tuple[str, ...]]] = {
    "reo_records_dropped_total": {"reason": metrics.DROP_REASONS},
    "reo_transactions_total": {"outcome": ("committed", "aborted", "unknown")},
    "reo_waiting": {"reason": tuple(REASONS)},
}
"""The labels that have fixed values, by the name that /metrics has for the metric; `stage` is one
everywhere.
"""


def commands_table() -> str:
    """Every command with its own options; what an option means is said once."""
    explained: set[str] = set()
    rows = [
        f"| `reo {words}` | {parser_help} | {_options(parser, explained)} |"
        for words, parser_help, parser in list_commands(commands.build_parser())
    ]
    return "\n".join(["| command | what it does | options of its own |", "|---|---|---|", *rows])


def list_commands(
    parser: argparse.ArgumentParser, words: str = ""
) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """The words, the meaning and the parser of each command that does something; a command of
    commands only leads there.
    """
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        meanings = {str(choice.dest): str(choice.help) for choice in action._choices_actions}
        for word, inner in action.choices.items():
            deeper = list(list_commands(inner, f"{words}{word} "))
            yield from deeper or [(f"{words}{word}", meanings[word], inner)]


def _options(parser: argparse.ArgumentParser, explained: set[str]) -> str:
    """Positional ones too; `--help` and `commands.SETTINGS_OPTIONS` are everybody's. An option with
    a text that is `explained` already is only named.
    """
    of_all = {arguments["help"] for _, arguments in commands.SETTINGS_OPTIONS}
    own = [
        action
        for action in parser._actions
        if "--help" not in action.option_strings and action.help not in of_all
    ]
    texts = [f"`{_usage(action)}`: {action.help}" for action in own]
    cells = [
        f"`{_usage(action)}`" if text in explained else text
        for action, text in zip(own, texts, strict=True)
    ]
    explained.update(texts)
    return "<br>".join(cells).replace("|", "\\|")


def _usage(action: argparse.Action) -> str:
    name = action.metavar or (
        "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    )
    if not action.option_strings:
        return str(name)
    return action.option_strings[-1] if action.nargs == 0 else f"{action.option_strings[-1]} {name}"


def metrics_table() -> str:
    """Every metric under the name that /metrics has for it, its labels and its meaning."""
    all_metrics = [
        metric
        for module in METRIC_MODULES
        for _, metric in inspect.getmembers(module)
        if isinstance(metric, MetricWrapperBase)
    ]
    rows = (
        f"| `{_exposed_name(metric)}` | {metric._type} |"
        f" {', '.join(f'`{label}`' for label in metric._labelnames)} |"
        f" {metric._documentation}{_format_values(metric)} |"
        for metric in sorted(all_metrics, key=lambda metric: metric._name)
    )
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])


def _format_values(metric: MetricWrapperBase) -> str:
    """The fixed values of labels that the metric's own text does not name."""
    return "".join(
        f" `{label}`: {', '.join(values)}."
        for label, values in LABEL_VALUES.get(_exposed_name(metric), {}).items()
        if not all(value in metric._documentation for value in values)
    )


def _exposed_name(metric: MetricWrapperBase) -> str:
    """Counters end in `_total` there; a histogram is three series, of which the name is the
    beginning.
    """
    ending = {"counter": "_total", "histogram": "_bucket`, `…_sum`, `…_count"}.get(
        str(metric._type), ""
    )
    return f"{metric._name}{ending}"
