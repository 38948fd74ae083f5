"""What a command has found, in the form that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from aliquot_cli.tables import table


def printed(
    found: Any, *, form: str, rows: Callable[[bool], Sequence[Sequence[str]]], lines: Callable[[], Sequence[str]]
) -> str:
    """One text: `rows` are the table's, wide or not, with their heading; `lines` are names for other commands."""
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(found)).decode()
    if form == "yaml":
        import yaml  # noqa: PLC0415 - only where it is asked for

        return str(yaml.safe_dump(msgspec.to_builtins(found), sort_keys=False, allow_unicode=True)).rstrip()
    if form == "name":
        return "\n".join(lines())
    return table(rows(form == "wide"))
