"""Which seeds are run: some of each share, thousands in a soak, or the one that was asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator

SOAK = bool(os.environ.get("ALIQUOT_SOAK"))


def chosen(share: int, *, each: int, soak: int) -> Iterator[int]:
    """The seeds of one share; a seed that was asked for is the first share's."""
    if asked := os.environ.get("ALIQUOT_SEED"):
        yield from [int(asked)] if share == 0 else []
        return
    each = soak if SOAK else each
    yield from range(1 + share * each, 1 + (share + 1) * each)
