"""The embedded API server without a wire, the same at every run."""

from __future__ import annotations

import random

from aliquot_standalone.apiserver.embedded import seeded_fresh
from aliquot_standalone.apiserver.frontend import Frontend
from aliquot_standalone.apiserver.store import Store

NOW = 1_700_000_000.0


def make_frontend(*, store: Store | None = None, keep: int = 4096) -> Frontend:
    """Make a server whose identities repeat, and whose history keeps so many changes."""
    chance = random.Random(7)
    return Frontend(fresh=seeded_fresh(chance), now=NOW, store=store or Store(keep=keep))
