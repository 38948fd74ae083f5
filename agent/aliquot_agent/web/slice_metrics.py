"""What Prometheus is told of slices. Pure, as `metrics` is; what is not known has no sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, Metric

from aliquot_agent.web.accounts import SliceUse
from aliquot_agent.web.families import MIB, WHOLE, gauge
from aliquot_agent.web.figures import Figures

_SLICE = ("namespace", "pod", "container", "UUID")


def of_slices(slices: Sequence[SliceUse]) -> Iterator[Metric]:
    """What each was granted, in which mode it is held, and what it uses."""
    granted = gauge("slice_memory_granted_bytes", "GPU memory that the container was granted.", _SLICE)
    used = gauge("slice_memory_used_bytes", "GPU memory that the container's processes hold.", _SLICE)
    compute = gauge("slice_compute_granted_ratio", "Compute that the container was granted.", _SLICE)
    limit = gauge("slice_compute_limit_ratio", "Compute up to which the container may burst.", _SLICE)
    busy = gauge("slice_compute_used_ratio", "Compute that the container's processes used since the last look.", _SLICE)
    held = gauge("slice_isolation", "1 for the mode of isolation in which the slice is held.", (*_SLICE, "isolation"))
    for one in slices:
        labels = _labels(one)
        if one.isolation:
            held.add_metric((*labels, one.isolation), 1)
        granted.add_metric(labels, one.memory_mib * MIB)
        compute.add_metric(labels, one.compute / WHOLE)
        limit.add_metric(labels, one.limit / WHOLE)
        if one.used_mib is not None:
            used.add_metric(labels, one.used_mib * MIB)
        if one.used_percent is not None:
            busy.add_metric(labels, one.used_percent / WHOLE)
    yield from (granted, used, compute, limit, busy, held)


def of_over_use(figures: Figures) -> Iterator[Metric]:
    """Of those alone that use more than granted."""
    over = gauge(
        "slice_over_use", "1 for how far it has come with a slice that uses more than granted.", (*_SLICE, "rung")
    )
    for one in figures.sampled.accounts.slices:
        rung = figures.over_use.get((one.uid, one.container, one.gpu))
        if rung:
            over.add_metric((*_labels(one), rung.name.lower()), 1)
    yield over


def of_live_limits(figures: Figures) -> Iterator[Metric]:
    """Of those alone that may have less just now."""
    memory = gauge(
        "slice_memory_allowed_bytes", "GPU memory that the container may have now, if less than granted.", _SLICE
    )
    limit = gauge(
        "slice_compute_allowed_ratio", "Compute up to which the container may burst now, if less than granted.", _SLICE
    )
    for one in figures.sampled.accounts.slices:
        now = figures.allowed.get((one.uid, one.container, one.gpu))
        labels = _labels(one)
        if now is not None and now.memory < one.memory_mib:
            memory.add_metric(labels, now.memory * MIB)
        if now is not None and now.limit < one.limit:
            limit.add_metric(labels, now.limit / WHOLE)
    yield from (memory, limit)


def of_unpaid_launches(figures: Figures) -> Iterator[Metric]:
    """Of those alone whose launches the agent paces."""
    passed = CounterMetricFamily(
        "aliquot_slice_unpaid_launches",
        "Launches that passed before they were paid for, as what was in flight might wait for them.",
        labels=_SLICE,
    )
    for one in figures.sampled.accounts.slices:
        count = figures.unpaid.get((one.uid, one.container, one.gpu))
        if count is not None:
            passed.add_metric(_labels(one), count)
    yield passed


def _labels(one: SliceUse) -> tuple[str, str, str, str]:
    return one.namespace, one.pod, one.container, one.gpu
