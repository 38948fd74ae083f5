"""Pods that ask for no slice: which node's GPUs they harm least, and who may be evicted for them.

Their cores are what GPUs lie idle without. Which nodes take them is kube-scheduler's to say; by these grades, where its
configuration asks for them (docs/placement.md), they go where `worth.loss` counts least. And where it asks, nobody who
has a slice goes for their CPU and memory: kube-scheduler would choose by priority alone, across tenants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from aliquot_core.errors import AliquotError
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import asks, parse_request
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


def spared(
    pod: Pod, offered: Mapping[str, Sequence[str]], *, pods: Mapping[str, Pod], names: Names
) -> dict[str, list[str]]:
    """Of nodes, each with whom kube-scheduler would evict there for a pod, those where nobody of them asks for slices.

    Fewer victims than it found would make no room, so a node stays as it is or goes. Who is not known holds no slice:
    all that do were bound by us. Of pods that run the cluster we are not asked (`extender/verbs.py`).
    """
    if asks(pod, names=names):
        return {}
    return {
        node: list(victims)
        for node, victims in offered.items()
        if not any(uid in pods and asks(pods[uid], names=names) for uid in victims)
    }


def _asks_for_slices(pod: Pod, *, names: Names) -> bool:
    try:
        return bool(parse_request(pod, names=names).containers)
    except AliquotError:
        # It is refused where slices are asked for.
        return True
