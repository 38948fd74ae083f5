"""What a queue says in vain: nothing is wrong with the tree, but its author may have meant something else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot_scheduler.queues.spec import QueueSpec, Quota


def oddities_of(name: str, specs: Mapping[str, QueueSpec]) -> Iterator[str]:
    """What of one queue has no effect, in sentences."""
    spec = specs[name]
    parent = specs.get(spec.parent)
    above = dict(_quotas(parent)) if parent else {}
    for thing, quota in _quotas(spec):
        for said in (*_lending(quota), *_borrowing(quota), *_above(quota, above.get(thing), parent=spec.parent)):
            yield f"queue {name}, spec.{thing}: {said}"
    if spec.namespaces and any(other.parent == name for other in specs.values()):
        yield f"queue {name}, spec.namespaces does nothing: pods wait in the queues below it"
    if not spec.autoscale and spec.autoscale_minutes != QueueSpec().autoscale_minutes:
        yield f"queue {name}, spec.autoscaleMinutes does nothing without autoscale"


def _quotas(spec: QueueSpec) -> Iterator[tuple[str, Quota]]:
    yield "compute", spec.compute
    yield "memory", spec.memory
    for model, of_model in spec.models.items():
        yield f"models[{model}].compute", of_model.compute
        yield f"models[{model}].memory", of_model.memory


def _lending(quota: Quota) -> Iterator[str]:
    if quota.lending_limit is not None and not quota.guarantee:
        yield "lendingLimit does nothing: there is no guarantee to lend of"


def _borrowing(quota: Quota) -> Iterator[str]:
    if quota.borrowing_limit is None:
        return
    most = (quota.guarantee or 0) + quota.borrowing_limit
    if quota.weight == 0 and quota.borrowing_limit:
        yield f"borrowingLimit {quota.borrowing_limit} does nothing: a queue of weight 0 borrows nothing"
    elif quota.limit is not None and most > quota.limit:
        yield f"borrowingLimit would allow {most} in all, but limit {quota.limit} comes before that"


def _above(quota: Quota, above: Quota | None, *, parent: str) -> Iterator[str]:
    if above is None or above.limit is None:
        return
    if quota.limit is not None and quota.limit > above.limit:
        yield f"limit {quota.limit} is never reached: queue {parent} above it has limit {above.limit}"
