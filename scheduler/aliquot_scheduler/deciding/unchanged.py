"""Whether a pod still asks for what room was promised to it: until it is bound, annotations may change. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot_core.errors import AliquotError
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import kinds, parse_request
from aliquot_scheduler.fit.demand import of_anybody


def asks_the_same(pod: Pod, before: Pod, *, names: Names) -> bool:
    """Compare two states of a pod; a request is read only where something is said otherwise, for that costs."""
    if all(now == then for now, then in zip(_said(pod, names), _said(before, names), strict=True)):
        return True
    try:
        return of_anybody(parse_request(pod, names=names)) == of_anybody(parse_request(before, names=names))
    except AliquotError:
        return False


def _said(pod: Pod, names: Names) -> Iterator[object]:
    """All from which it is read where a pod may lie."""
    notes = pod.metadata.annotations
    yield pod.metadata.labels.get(names.use)
    yield [container.resources for _, container in kinds(pod)]
    for name in (names.gpus, names.compute_limit, names.gpu_model, names.gpu_uuid, names.placement, names.isolation):
        yield notes.get(name)
