"""What a command has found, in the form that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec


def printed(found: Any, *, form: str, text: Callable[[bool], str], lines: Callable[[], Iterable[str]]) -> str:
    """One text: `text` is for people, wide or not; `lines` are names for other commands."""
    if is_data(form):
        return as_data(found, form=form)
    return "\n".join(lines()) if form == "name" else text(form == "wide")


def is_data(form: str) -> bool:
    """Whether it is for programs, which want all there is."""
    return form in {"json", "yaml"}


def as_data(found: Any, *, form: str) -> str:
    """All of it, as JSON or as YAML."""
    if form == "yaml":
        import yaml  # only where it is asked for

        return str(yaml.safe_dump(msgspec.to_builtins(found), sort_keys=False, allow_unicode=True)).rstrip()
    return msgspec.json.format(msgspec.json.encode(found)).decode()
