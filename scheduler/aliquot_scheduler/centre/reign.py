"""One term of leading: all is read from the API server, decided by, and forgotten when the term is over.

A replica that does not lead keeps no picture: what it knew could lack the last write of the leader before it. Whoever
begins to lead reads everything anew (5,000 pods in a tenth of a second), and decides only once it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_core.objects import Lease, Namespace, Node, Pod, Queue
from aliquot_core.request import asks
from aliquot_kube.changes import Added, Change, Deleted, Modified, Synced
from aliquot_kube.client import KubeClient
from aliquot_kube.reflector import Freshness
from aliquot_kube.transport import Timeouts, Transport
from aliquot_scheduler.centre.binder import Binder
from aliquot_scheduler.centre.clerks import Clerks
from aliquot_scheduler.centre.for_the_cluster import ForTheCluster
from aliquot_scheduler.centre.gatekeeper import Gatekeeper
from aliquot_scheduler.centre.means import Means, means_of
from aliquot_scheduler.centre.of_the_cluster import OfTheCluster
from aliquot_scheduler.centre.replanter import Replanter
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.centre.table_renewer import Aside, at_once
from aliquot_scheduler.centre.watches import Watches
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.fit.nowhere import nowhere_in
from aliquot_scheduler.picture.hearing import Hearing, deaf_after
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.picture.there import There, there_in
from aliquot_scheduler.queues.said.entry import home_of, specs_of
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.rules.judging import NO_RULES, Rules
from aliquot_scheduler.worth.mix import Mix

log = logging.getLogger(__name__)

# One write must not outlive our leadership by more than the agents can catch: they have the last word.
WRITES = Timeouts(connect=1.5, silence=3.0, total=4.0)


class Reign:
    """One term of leading: everything that is known and decided in it."""

    def __init__(
        self,
        *,
        transport: Transport,
        clock: Clock,
        random: Random,
        names: Names,
        settings: CentreSettings,
        queues: QueueSettings,
        leads: Callable[[], bool],
        settled: Callable[[], None],
        led_until: float | None,
        renew: float,
        aside: Aside = at_once,
        rules: Rules = NO_RULES,
        mix: Mix | None = None,
    ) -> None:
        """`settled` is called once all is read: what lives by then lives long, and a collector may pass over it.

        Whoever led before beat last at `led_until`, by its wall clock; None where nobody is known to have led. `aside`
        does long work beside the decisions. The leader's own Lease is renewed every `renew` seconds.
        """
        self._clock, self._names = clock, names
        self._stale = settings.stale
        self._leads, self._settled = leads, settled
        deaf = deaf_after(renew)
        self._watches = Watches(transport=transport, clock=clock, random=random, names=names, deaf=deaf)
        self.picture = Picture(names=names, hearing=Hearing(silence=self._watches.silence, after=deaf))
        self.rules = rules
        self.turns = Queues(names=names, random=random, picture=self.picture, settings=queues, rules=rules)
        self.appraiser = Appraiser(picture=self.picture, names=names, given=mix)
        self.desk = Desk(
            picture=self.picture,
            names=names,
            turns=self.turns,
            promise=settings.promise,
            look=self.appraiser.look,
            rules=rules,
        )
        means = self._means(transport=transport, random=random, instance=settings.name)
        self.long_turns = means.long_turns
        self.clerks = Clerks(
            turns=self.turns,
            picture=self.picture,
            appraiser=self.appraiser,
            watches=self._watches,
            means=means,
            settings=settings,
            moves_per_hour=queues.moves_per_hour,
            aside=aside,
            led_until=led_until,
        )
        labels_of = self._watches.labels_of
        self.for_the_cluster = ForTheCluster(means=means, labels_of=labels_of)
        self.binder = Binder(desk=self.desk, means=means, charged_in=self.turns.charged_in, labels_of=labels_of)
        self.gatekeeper = Gatekeeper(desk=self.desk, turns=self.turns, means=means)
        self.replanter = Replanter(read=self._read_changed_queues, clock=clock)
        self._subscribe()

    def _means(self, *, transport: Transport, random: Random, instance: str) -> Means:
        return means_of(
            client=KubeClient(transport=transport, timeouts=WRITES),
            clock=self._clock,
            random=random,
            names=self._names,
            instance=instance,
            why_not=self.why_not,
        )

    def _subscribe(self) -> None:
        watches, watched = self._watches, self.long_turns.taking_in
        self.desk.tell_time(self._clock.monotonic())
        watches.queues.subscribe(watched("queue", self._queue_changed))
        watches.namespaces.subscribe(watched("namespace", self._namespace_changed))
        waits = self.clerks.beside.taking_in(self.for_the_cluster.pod_changed)
        by_label = [waits, *self.clerks.by_label()]
        of_the_cluster = OfTheCluster(names=self._names, pods=lambda: self.pods, tell=by_label)
        watches.namespaces.subscribe(watched("namespace", of_the_cluster.namespace_changed))
        watches.nodes.subscribe(watched("node", self._node_changed))
        watches.pods.subscribe(watched("pod", self._pod_changed))
        for take in self.clerks.pod_changes():
            watches.pods.subscribe(watched("pod", take))
        watches.pods.subscribe(watched("pod", waits))
        watches.leases.subscribe(watched("lease", self._lease_changed))

    def why_not(self) -> str:
        """Why nothing may be decided at this instant."""
        if not self._leads():
            return "this replica does not lead any more"
        return self._watches.why_blind(stale=self._stale)

    def why_deaf(self, *, after: float | None = None) -> str:
        """That the API server was not heard for `after` seconds, or as long as is deafness."""
        return self._watches.why_deaf(after=after)

    def there(self) -> There:
        """Which GPUs and nodes the cluster has."""
        return replace(there_in(self.picture), nowhere=nowhere_in(self.picture, names=self._names))

    @property
    def pods(self) -> Mapping[str, Pod]:
        """All pods by `namespace/name`, as they are told of: live, for the loop's own thread."""
        return self._watches.pods.objects

    def freshness(self) -> dict[str, Freshness]:
        """How old our knowledge is, by what it is of."""
        return self._watches.freshness()

    async def run(self) -> None:
        """Reign until cancelled."""
        watches = self._watches
        async with asyncio.TaskGroup() as work:
            for run in (watches.queues.run, watches.namespaces.run, watches.nodes.run, watches.leases.run):
                work.create_task(run())
            # What a pod holds is charged in its queue from the first word on it; and it is learnt of only once.
            await asyncio.gather(watches.queues.synced(), watches.namespaces.synced(), self.clerks.recall())
            self.clerks.queue_writer.recall()
            work.create_task(self.replanter.run())
            work.create_task(watches.pods.run())
            work.create_task(self.gatekeeper.run())
            work.create_task(self.binder.settle_doubts())
            await asyncio.gather(watches.nodes.synced(), watches.pods.synced(), watches.leases.synced())
            self._settled()
            self.gatekeeper.look()
            for run in self.clerks.runs():
                work.create_task(run())
            log.info(
                "knows the cluster", extra={"nodes": len(watches.nodes.objects), "pods": len(watches.pods.objects)}
            )

    # --- what the watches tell ---------------------------------------------------------------------------------------
    def _node_changed(self, change: Change[Node]) -> None:
        match change:
            case Added(new=node) | Modified(new=node):
                self.picture.node_seen(node)
            case Deleted(old=node):
                self.picture.node_gone(node.metadata.name)
        self.gatekeeper.look()

    def _queue_changed(self, change: Change[Queue]) -> None:
        """The tree is one thing: it is read as a whole, and once at the beginning."""
        match change:
            case Modified(old=old, new=new) if old.spec == new.spec:
                return
            case Synced():
                self._read_queues()
            case _ if self._watches.queues.freshness().synced:
                self.replanter.changed()

    def _read_changed_queues(self) -> None:
        with self.long_turns.watched("event", lambda: "queue all that changed"):
            self._read_queues()

    def _read_queues(self) -> None:
        self.turns.queues_seen(specs_of(self._watches.queues.objects.values()))
        self.gatekeeper.look()

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        match change:
            case Added(new=namespace) | Modified(new=namespace):
                self.turns.namespace_seen(namespace.metadata.name, queue=home_of(namespace, names=self._names))
            case Deleted(old=namespace):
                self.turns.namespace_seen(namespace.metadata.name, queue="")
        self.gatekeeper.look()

    def _lease_changed(self, change: Change[Lease]) -> None:
        self.picture.tell_time(self._clock.monotonic())
        match change:
            case Added(new=lease) | Modified(new=lease):
                self.picture.lease_seen(lease, wall=self._clock.wall())
            case Deleted(old=lease):
                self.picture.lease_gone(lease.metadata.name)

    def _pod_changed(self, change: Change[Pod]) -> None:
        match change:
            case Modified(old=old, new=pod) if old.metadata.uid != pod.metadata.uid:
                self._pod_gone(old)
                self._pod_seen(pod)
            case Added(new=pod) | Modified(new=pod):
                self._pod_seen(pod)
            case Deleted(old=pod):
                self._pod_gone(pod)

    def _pod_seen(self, pod: Pod) -> None:
        self.appraiser.pod_seen(pod)
        if not asks(pod, names=self._names):
            self.picture.pod_lies(pod)
            if pod.ended:
                self.gatekeeper.look()
            return
        self.desk.pod_seen(pod)
        self.turns.pod_seen(pod)
        self.binder.told(pod)
        self.gatekeeper.told(pod)
        if pod.ended or (pod.spec.scheduling_gates and self.turns.is_in_line(pod.metadata.uid)):
            # Not for what we have just written on one that is let in.
            self.gatekeeper.look()

    def _pod_gone(self, pod: Pod) -> None:
        self.appraiser.pod_gone(pod)
        self.desk.pod_gone(pod)
        self.turns.pod_gone(pod.metadata.uid)
        self.gatekeeper.look()
