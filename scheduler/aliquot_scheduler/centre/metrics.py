"""What the leader tells Prometheus of the cluster; read from its picture when it is scraped, sums only.

Series per GPU are the agents' to tell: 40,000 of them would hold up decisions for 0.3 s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from aliquot_core.quantities import WHOLE
from aliquot_scheduler.centre.causes import Cause
from aliquot_scheduler.centre.long_turns import LONG, SORTS
from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.deciding.promises import Stage
from aliquot_scheduler.picture.grid import Bools, Ints
from aliquot_scheduler.picture.host_room import OWN_COMPUTE, OWN_MEMORY, HostInts, Reals
from aliquot_scheduler.picture.signs import UNHEARD
from aliquot_scheduler.rules.judging import Rules

_MIB = 1024 * 1024


class CentreCollector(Collector):
    """Whoever does not lead says only that, and how wrong its clock is."""

    def __init__(
        self,
        *,
        reign: Callable[[], Reign | None],
        leads: Callable[[], bool],
        over_use: Callable[[], Sequence[tuple[str, str]] | None] = lambda: None,
        ahead: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`over_use` are slices beyond their grant as agents tell, by pod and rung; None where nobody asks them.

        `ahead`: how far the clock here is ahead of the API server's, in seconds, if that is known.
        """
        self._reign = reign
        self._leads = leads
        self._over_use = over_use
        self._ahead = ahead

    def describe(self) -> Iterable[Metric]:
        """Nothing: what is told depends on who leads."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All families."""
        yield _gauge("leader", "Whether this replica leads.", float(self._leads()))
        if (ahead := self._ahead()) is not None:
            text = "How far the clock of this replica's machine is ahead of the API server's; below 0: behind."
            yield _gauge("clock_skew_seconds", text, ahead)
        if reign := self._reign():
            yield from _knowledge(reign)
            yield from _nodes(reign)
            yield from _gpus(reign)
            yield from _pods(reign)
            yield from _evictions(reign)
            yield from _queues(reign)
            yield from _rules(reign.rules)
            yield from _beyond(reign, self._over_use())


def _knowledge(reign: Reign) -> Iterable[Metric]:
    ages = GaugeMetricFamily(
        "aliquot_centre_watch_age_seconds", "How long ago the API server last said anything.", labels=["resource"]
    )
    for what, freshness in reign.freshness().items():
        if freshness.contact_age is not None:
            ages.add_metric([what], freshness.contact_age)
    yield ages
    yield _gauge("deciding", "Whether decisions are made: all is known, and nothing is stale.", not reign.why_not())


def _nodes(reign: Reign) -> Iterable[Metric]:
    """A cordon is somebody's will, and nothing to wake anybody for; of whom we are deaf to nothing is known."""
    nodes = reign.picture.nodes.values()
    cordoned = sum(known.node.spec.unschedulable for known in nodes)
    unheard = sum(known.out == UNHEARD for known in nodes)
    out = sum(bool(known.out) for known in nodes if not known.node.spec.unschedulable) - unheard
    family = GaugeMetricFamily("aliquot_centre_nodes", "Nodes, by whether pods may be bound to them.", labels=["state"])
    family.add_metric(["in"], len(nodes) - out - unheard - cordoned)
    family.add_metric(["out"], out)
    family.add_metric(["unheard"], unheard)
    family.add_metric(["cordoned"], cordoned)
    yield family


def _gpus(reign: Reign) -> Iterable[Metric]:
    grid, left = reign.picture.grid, reign.picture.hosts.free
    there = grid.open & grid.bindable[:, None]
    compute = _given(grid.compute, there & ~grid.closed, left=left[:, OWN_COMPUTE])[there] / WHOLE.value
    usable = np.maximum(1, grid.usable[there])
    # Of an instance of MIG as much of a card as its compute is.
    card = np.maximum(1, usable * WHOLE.value // np.maximum(1, grid.total[there]))
    memory = _given(grid.memory, there & ~grid.closed, left=left[:, OWN_MEMORY])[there] / card
    yield _gauge("gpus", "GPUs of nodes that pods may be bound to.", int(there.sum()))
    yield _gauge("compute_free_gpus", "Compute that nobody holds, in GPUs.", float(compute.sum()))
    yield _gauge("memory_free_bytes", "Memory that nobody holds.", float((memory * card).sum()) * _MIB)
    yield _gauge(
        "compute_stranded_gpus",
        "Free compute without its card's share of memory beside it, in GPUs.",
        float(np.maximum(0.0, compute - memory).sum()),
    )
    yield _gauge(
        "memory_stranded_bytes",
        "Free memory without its card's share of compute beside it.",
        float((np.maximum(0.0, memory - compute) * card).sum()) * _MIB,
    )


def _given(free: Ints, where: Bools, *, left: HostInts) -> Reals:
    """What is free of GPUs, of each node no more than kube-scheduler counts as left: each GPU has its part of that.

    What a pod holds that is bound without a grant lies on no GPU, and nobody gets it all the same.
    """
    there = np.where(where, free, 0).astype(np.float64)
    part: Reals = np.minimum(1.0, left.clip(0) / np.maximum(1.0, there.sum(axis=1)))
    return there * part[:, None]


def _pods(reign: Reign) -> Iterable[Metric]:
    stages = Counter(promise.stage for promise in reign.desk.promises)
    promises = GaugeMetricFamily(
        "aliquot_centre_promises", "Room kept for pods that are not granted yet.", labels=["stage"]
    )
    for stage in Stage:
        promises.add_metric([stage], stages[stage])
    yield promises
    yield _gauge("waiting_pods", "Pods that wait for their turn.", len(reign.turns))
    unheard = reign.turns.register.lost_turns.unheard_pods()
    yield _gauge("unheard_pods", "Pods whose scheduler, by its name, has never asked for any.", unheard)
    ungranted = sum(map(len, reign.picture.hosts.ungranted.values()))
    yield _gauge("ungranted_pods", "Pods that are bound without a grant, and keep others off their nodes.", ungranted)
    missed = CounterMetricFamily(
        "aliquot_centre_turns_missed",
        "Turns of pods that have led to no binding, by what kube-scheduler has said of the pod.",
        labels=["said"],
    )
    for said, count in reign.desk.missed.counts.items():
        missed.add_metric([said], count)
    yield missed
    long = CounterMetricFamily(
        "aliquot_centre_long_turns", f"What has held the leader up for over {LONG:g} s, by what it was.", labels=["of"]
    )
    for sort in SORTS:
        long.add_metric([sort], reign.long_turns.counts[sort])
    yield long
    clerks = reign.clerks
    untold = CounterMetricFamily(
        "aliquot_centre_untold", "How often something could not be told, by what it is to be told of.", labels=["of"]
    )
    in_vain = (clerks.in_vain,) if clerks.in_vain else ()
    evicting = clerks.evictor, clerks.rooms, clerks.gangs, clerks.over_use, *in_vain
    pods = clerks.notices, clerks.over_use_words, clerks.beside, *evicting
    for sort, writers in (
        ("pod", pods),
        ("node", (clerks.nodes,)),
        ("queue", (clerks.queue_writer,)),
        ("view", (clerks.views,)),
    ):
        untold.add_metric([sort], sum(writer.untold for writer in writers))
    yield untold


def _evictions(reign: Reign) -> Iterable[Metric]:
    yield _gauge("clearings", "Pods or gangs for which others have to go.", len(reign.turns.register.clearings))
    asked = CounterMetricFamily(
        "aliquot_centre_evictions", "Pods that were asked to go for others, by what came of it.", labels=["outcome"]
    )
    evicted = reign.clerks.evicted()
    asked.add_metric(["taken"], evicted[Cause.OTHERS])
    asked.add_metric(["taken against a disruption budget"], evicted[Cause.BUDGET])
    asked.add_metric(["kept"], reign.clerks.evictor.kept)
    asked.add_metric(["taken to be placed elsewhere"], evicted[Cause.MOVED])
    yield asked
    caused = CounterMetricFamily(
        "aliquot_centre_evictions_for_cause", "Pods that were asked to go for nobody else.", labels=["cause"]
    )
    caused.add_metric(["over-use"], evicted[Cause.OVER_USE])
    caused.add_metric(["broken group"], evicted[Cause.BROKEN])
    yield caused
    by_priority = CounterMetricFamily(
        "aliquot_centre_evictions_by_priority",
        "Pods with slices that a kube-scheduler has evicted by their priority, for pods without.",
    )
    by_priority.add_metric([], evicted[Cause.PRIORITY])
    yield by_priority
    refused = CounterMetricFamily(
        "aliquot_centre_preemptions_refused",
        "How often kube-scheduler was offered nobody to evict, by why.",
        labels=["why"],
    )
    for why, count in reign.binder.preemptions_refused.items():
        refused.add_metric([why], count)
    yield refused


def _queues(reign: Reign) -> Iterable[Metric]:
    """As their statuses were worked out last, a few seconds ago."""
    told = reign.clerks.queue_writer.latest
    for field, text in (
        ("used", "What a queue's pods hold"),
        ("borrowed", "What of it lies beyond the queue's guarantee"),
        ("fair_share", "What a queue is due by what all ask"),
        ("asked", "What waits in a queue"),
        ("lately", "Decayed usage beyond the guarantee"),
    ):
        name = f"aliquot_queue_{field}"
        compute = GaugeMetricFamily(f"{name}_compute_gpus", f"{text}, in GPUs of compute.", labels=["queue"])
        memory = GaugeMetricFamily(f"{name}_memory_bytes", f"{text}, in GPU memory.", labels=["queue"])
        for queue, status in told.items():
            compute.add_metric([queue], getattr(status, field).compute / WHOLE.value)
            memory.add_metric([queue], getattr(status, field).memory * _MIB)
        yield from (compute, memory)
    waiting = GaugeMetricFamily(
        "aliquot_queue_waiting_pods", "Pods that wait in a queue or below it.", labels=["queue"]
    )
    for queue, status in told.items():
        waiting.add_metric([queue], status.waiting)
    yield waiting
    reasons = GaugeMetricFamily(
        "aliquot_queue_waiting_for_pods",
        "Pods that wait in a queue itself, by the word in their condition that says why.",
        labels=["queue", "reason"],
    )
    for (queue, reason), count in sorted(reign.clerks.notices.reasons.items()):
        reasons.add_metric([queue, reason], count)
    yield reasons
    doubted = GaugeMetricFamily(
        "aliquot_queue_users_in_doubt",
        "Users of a queue whose pods come one at a time, since turns of theirs led to nothing.",
        labels=["queue"],
    )
    for queue, count in sorted(Counter(queue for queue, _ in reign.turns.register.lost_turns.doubted()).items()):
        doubted.add_metric([queue], count)
    yield doubted
    waits = SummaryMetricFamily(
        "aliquot_queue_wait_seconds", "How long pods waited until they were let in.", labels=["queue"]
    )
    for queue, (count, seconds) in reign.turns.waits.by_queue.items():
        waits.add_metric([queue], count, seconds)
    yield waits


def _rules(rules: Rules) -> Iterable[Metric]:
    """Of a rule that fails pods know nothing: they are placed as if it were not there."""
    failures = CounterMetricFamily(
        "aliquot_centre_rule_failures", "How often a rule has failed, and so was silent for a pod.", labels=["rule"]
    )
    aside = GaugeMetricFamily(
        "aliquot_centre_rules_set_aside", "Whether a rule is asked no more, as it took too long.", labels=["rule"]
    )
    for name in sorted({*rules.names, *rules.set_aside}):
        failures.add_metric([name], rules.failures[name])
        aside.add_metric([name], float(name in rules.set_aside))
    yield from (failures, aside)


def _beyond(reign: Reign, slices: Sequence[tuple[str, str]] | None) -> Iterable[Metric]:
    """Which pods they are, their agents' own metrics say; whose queue is charged for them, only the centre knows."""
    if slices is None:
        return
    family = GaugeMetricFamily(
        "aliquot_queue_over_use_slices",
        "Slices of a queue's pods that use more than granted, by how far their agents have gone.",
        labels=["queue", "rung"],
    )
    found = ((reign.pods.get(pod), rung) for pod, rung in slices)
    charges = ((reign.turns.books.ledger.of(pod.metadata.uid), rung) for pod, rung in found if pod)
    counts = Counter((charge.queue, rung) for charge, rung in charges if charge)
    for (queue, rung), count in sorted(counts.items()):
        family.add_metric([queue, rung], count)
    yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(f"aliquot_centre_{name}", text)
    family.add_metric([], value)
    return family
