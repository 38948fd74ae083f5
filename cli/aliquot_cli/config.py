"""`aliquot config`: what is set, and by what."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from aliquot_cli.handing_out import hand_out
from aliquot_cli.options import form_option
from aliquot_cli.printing import printed
from aliquot_cli.sections import SECTIONS
from aliquot_cli.sources import gather
from aliquot_cli.tables import table


@click.command()
@click.option(
    "--config", "file", metavar="FILE", help="Settings file (default: $ALIQUOT_CONFIG, /etc/aliquot/aliquot.toml)."
)
@form_option()
def config(file: str | None, form: str) -> None:
    """Print every setting with its value and its source; exits 4 if one of them can't be used.

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
    hand_out(printed(rows, form=form, text=lambda _: _text(rows), lines=lambda: map(_name, rows)))


def _text(rows: list[dict[str, Any]]) -> str:
    told = ((_name(row), str(row["value"]), row["source"]) for row in rows)
    return table([("SETTING", "VALUE", "SOURCE"), *told])


def _name(row: dict[str, Any]) -> str:
    return f"{row['section']}.{row['name']}"
