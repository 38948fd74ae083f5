"""YAML from the node, read within bounds: a file of a few hundred bytes with aliases can stand for gigabytes.

The document is walked through as events first, which takes no memory; only what is small, shallow and without aliases
is then built. PyYAML comes with the `kubernetes` package; this module is imported only where a YAML spec is found.
"""

from __future__ import annotations

from typing import Any

import yaml

from aliquot_deviceplugin.cdi.errors import SpecError

# A spec of 16 GPUs with all their MIG parts has about 20,000 events and is 7 deep.
MOST_EVENTS = 200_000
DEEPEST = 20

# The one on libyaml reads a spec of 16 kB in 4 ms; the one in Python takes 23 ms to build it alone.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(content: bytes, *, where: str) -> Any:
    """What the YAML says, as plain lists, dictionaries and scalars."""
    try:
        _check_bounds(content, where=where)
        return yaml.load(content, Loader=_Loader)  # noqa: S506 - one of the two safe loaders
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SpecError(f"not readable: {' '.join(str(error).split())[:200]}", where=where) from None


def _check_bounds(content: bytes, *, where: str) -> None:
    depth = 0
    for count, event in enumerate(yaml.parse(content, Loader=_Loader)):
        if isinstance(event, yaml.AliasEvent):
            raise SpecError("holds YAML aliases, which no generated CDI spec does", where=where)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST or count > MOST_EVENTS:
            raise SpecError("is nested too deep or holds too many parts for a CDI spec", where=where)
