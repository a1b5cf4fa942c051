"""`reo config import`: makes a settings file from kaf-relay's, kafka-reo's or MirrorMaker 2's.

A secret is printed only on request.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.errors import SettingsInvalid
from common.settings import settings_file
from reo.importers import kaf_relay, kafka_reo, mirrormaker, mirrormaker_properties
from reo.importers.imported_settings import ImportedSettings


def import_files(files: Sequence[str], with_secrets: bool, mode: str = "", flow: str = "") -> int:
    """The command: prints a settings file; keys without a counterpart go to standard error, and
    into the file as comments.
    """
    try:
        texts = {file: Path(file).read_text(encoding="utf-8") for file in files}
        imported = _import_texts(texts, with_secrets, mode, flow)
    except (OSError, ValueError) as error:  # parsers' and Unicode's errors are ValueErrors
        print(f"reo config import: {', '.join(files)}: {error}", file=sys.stderr)
        return SettingsInvalid.exit_code
    print(imported.format_toml())
    for key, why in imported.notes:
        print(f"reo config import: {key}: {why}", file=sys.stderr)
    return 0


def _import_texts(
    texts: Mapping[str, str], with_secrets: bool, mode: str, flow: str
) -> ImportedSettings:
    """Of one program: what a later file says wins."""
    if all(file.endswith((".yaml", ".yml")) for file in texts):
        trees = [dict(settings_file.read_file(file)) for file in texts]
        imported = kafka_reo.import_settings(kaf_relay.merge_tables(trees))
    elif any(mirrormaker_properties.is_mirrormaker(*file) for file in texts.items()):
        chosen = mirrormaker_properties.read_flow(texts.values(), flow)
        imported = mirrormaker.import_settings(chosen, with_secrets)
        source, target = (
            chosen.properties.get(f"{side}.cluster.alias", side) for side in ("source", "target")
        )
        imported.set_topics(f"reo-{source}-{target}")
    else:
        tree = kaf_relay.merge_tables([tomllib.loads(text) for text in texts.values()])
        imported = kaf_relay.import_settings(tree, with_secrets, mode)
        imported.set_topics("kaf-relay")
    return imported
