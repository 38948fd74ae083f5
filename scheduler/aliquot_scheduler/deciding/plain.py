"""Pods that ask for no slice: which node's GPUs they harm least.

Their cores are what GPUs lie idle without. Which nodes take them is kube-scheduler's to say; by these grades, where its
configuration asks for them (docs/placement.md), they go where `worth.loss` counts least.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aliquot_core.errors import AliquotError
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import parse_request
from aliquot_scheduler.extender.decisions import BEST_GRADE
from aliquot_scheduler.fit.cost import WORST, grade
from aliquot_scheduler.fit.finder import Look
from aliquot_scheduler.picture.picture import Picture


def plain_grades(pod: Pod, nodes: Sequence[str], *, picture: Picture, names: Names, look: Look | None) -> list[int]:
    """How good each node is; the best alone is one better than its equals, since kube-scheduler draws among those.

    A node without GPUs loses nothing, and is as good as any other of these. Of a pod with slices nothing is said.
    """
    if look is None or _asks_for_slices(pod, names=names):
        return [0] * len(nodes)
    known, rows = picture.rows_of(nodes)
    lost = look(pod).among(rows).of_nodes([])
    least = min(0.0, lost.min(initial=0.0)) if len(known) < len(nodes) else lost.min(initial=np.inf)
    grades = np.minimum(grade(np.clip(lost - least, 0.0, WORST), best=BEST_GRADE), BEST_GRADE - 1)
    if lost.size and lost.min() <= least:
        grades[lost.argmin()] += 1
    told = dict(zip(known, grades.tolist(), strict=True))
    return [told.get(node, BEST_GRADE) for node in nodes]


def _asks_for_slices(pod: Pod, *, names: Names) -> bool:
    try:
        return bool(parse_request(pod, names=names).containers)
    except AliquotError:
        # It is refused where slices are asked for.
        return True
