"""`aliquot config`: what is set, and by what."""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

from aliquot_cli.sources import SECTIONS, gather


@click.command()
@click.option(
    "--config", "file", metavar="FILE", help="Settings file (default: $ALIQUOT_CONFIG, /etc/aliquot/aliquot.toml)."
)
@click.option("-o", "form", type=click.Choice(["table", "json"]), default="table", help="How to print.")
def config(file: str | None, form: str) -> None:
    r"""Print every setting with its value and its source; exits 4 if one of them can't be used.

    \b
    Example:
      ALIQUOT_AGENT_NODE_NAME=gpu-1 aliquot config
    """
    sources = gather(file=file)
    rows = [
        {"section": section, "name": name, "value": value, "source": resolved.sources[name]}
        for section, kind in SECTIONS.items()
        for resolved in [sources.resolve(section, kind)]
        for name, value in msgspec.structs.asdict(resolved.value).items()
    ]
    click.echo(json.dumps(rows, indent=2, default=str) if form == "json" else _table(rows))


def _table(rows: list[dict[str, Any]]) -> str:
    cells = [("SETTING", "VALUE", "SOURCE")]
    cells += [(f"{row['section']}.{row['name']}", str(row["value"]), row["source"]) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(2)]
    return "\n".join(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}" for name, value, source in cells)
