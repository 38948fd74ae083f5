"""An arrival order drawn from a seed, where none is given: rule 2 of benchmarks/placement/openb/README.md."""

from __future__ import annotations

import numpy as np

from aliquot_scheduler.simulating.workload import Longs, Need

# So much of the GPUs is asked for in all, and nothing more behind that.
MOST_ASKED = 1.30


def draw_order(random: np.random.Generator, *, needs: tuple[Need, ...], pods: Longs, capacity: int) -> Longs:
    """All pods shuffled; then more are drawn, or, where the list asks for too much, some are left out."""
    totals = np.array([need.total for need in needs], dtype=np.int64)[pods]
    limit = int(MOST_ASKED * capacity)
    order = random.permutation(len(pods))
    asked = int(totals.sum())
    if asked > limit:
        return order[totals[order].cumsum() <= limit]
    if not asked:
        return order
    more: list[int] = []
    while asked + totals[drawn := int(random.integers(len(pods)))] <= limit:
        asked += int(totals[drawn])
        more.append(drawn)
    return np.concatenate([order, np.array(more, dtype=np.int64)])
