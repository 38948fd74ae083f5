"""Defaults that all objects share must stay as they are, or one test's pod becomes every later test's.

The structs of `aliquot_core.objects` are frozen, but the dicts in them are not: a container that names no resources
has the one default `ResourceRequirements`, and whoever writes into that gives cores to each such container of the
process. It was seen: a pod of another test was refused for want of CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from aliquot_core import objects


def _shared() -> Iterator[tuple[str, msgspec.Struct]]:
    for struct in vars(objects).values():
        if isinstance(struct, type) and issubclass(struct, msgspec.Struct):
            # The last fields are those that have defaults.
            names = reversed(struct.__struct_fields__)
            for name, default in zip(names, reversed(struct.__struct_defaults__), strict=False):
                if isinstance(default, msgspec.Struct):
                    yield f"{struct.__name__}.{name}", default


_SHARED = tuple(_shared())


def mended_defaults() -> list[str]:
    """Which shared defaults somebody has written into; they are as before again."""
    spoilt = [(name, default) for name, default in _SHARED if default != type(default)()]
    for _, default in spoilt:
        for field in default.__struct_fields__:
            if isinstance(value := getattr(default, field), dict | list):
                value.clear()
    return [name for name, _ in spoilt]
