"""Pods without slices that wait on a node for others who are not evicted for them, where the webhook refuses that.

kube-scheduler has chosen the node, has been told of each slice there that it is gone already (`admission/sparing.py`),
and nominates the pod: it says nothing of why that waits. Nor does what it writes on its victims say for whom. But where
nobody leaves a node for which a pod has been nominated for a while, those of lower priority who stay are the reason.
For pods that run the cluster they go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from aliquot_core.counting import counted
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import asks
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.put_off import PutOff
from aliquot_scheduler.extender.preempting import goes_by_priority, runs_the_cluster
from aliquot_scheduler.queues.telling.notices import Notice

_LOOK = 2.0
# By then those whom kube-scheduler may evict are on the way out, or it has bound the pod.
_SETTLED = 10.0
# So many are named: whose they are may end them.
_NAMED = 3


class NominatedInVain:
    """Knows who is nominated; `run` tells each once of each node."""

    def __init__(
        self, *, means: Means, pods: Callable[[], Mapping[str, Pod]], labels_of: Callable[[str], Mapping[str, str]]
    ) -> None:
        """`pods` are all there are; `labels_of` tells the labels of a namespace by its name."""
        self._clock, self._events, self._names = means.clock, means.events, means.names
        self._why_not, self._pods, self._labels_of = means.why_not, pods, labels_of
        # By UID: the last word on each, and since when it is nominated for that node.
        self._nominated: dict[str, tuple[Pod, float]] = {}
        self._told: dict[str, set[str]] = {}
        self._untold = PutOff(what="a pod could not be told for whom it waits", means=means)

    @property
    def untold(self) -> int:
        """How often one could not be told."""
        return self._untold.count

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take in what the watch tells."""
        match change:
            case Deleted(old=pod):
                self._gone(pod)
            case Modified(old=old, new=pod):
                if old.metadata.uid != pod.metadata.uid:
                    self._gone(old)
                self._seen(pod)
            case Added(new=pod):
                self._seen(pod)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            if not self._why_not():
                self.look()
            await self._clock.sleep(_LOOK)

    def look(self) -> None:
        """Tell those who have waited for long enough."""
        now = self._clock.monotonic()
        late = [pod for pod, since in self._nominated.values() if now - since >= _SETTLED and not self._is_told(pod)]
        there = self._on({pod.status.nominated_node_name for pod in late})
        self._untold.look_begins()
        for pod in late:
            tell = partial(self._tell, pod, there[pod.status.nominated_node_name])
            self._untold.attempt(pod.metadata.uid, tell, of=pod.key)

    def _tell(self, pod: Pod, there: Sequence[Pod]) -> None:
        if notice := why_it_waits(pod, there, names=self._names):
            self._told.setdefault(pod.metadata.uid, set()).add(pod.status.nominated_node_name)
            self._events.tell(pod, notice, action="Preempting", warning=True)

    def _on(self, nodes: Collection[str]) -> Mapping[str, Sequence[Pod]]:
        """All who lie on these nodes: once for all, for there are thousands, and hundreds may be nominated."""
        found: dict[str, list[Pod]] = {node: [] for node in nodes}
        for pod in self._pods().values() if nodes else ():
            if pod.spec.node_name in found and not pod.ended:
                found[pod.spec.node_name].append(pod)
        return found

    def _seen(self, pod: Pod) -> None:
        uid, node = pod.metadata.uid, pod.status.nominated_node_name
        if pod.spec.node_name or pod.ended:
            self._gone(pod)
        elif not node or asks(pod, names=self._names) or self._runs_the_cluster(pod):
            self._nominated.pop(uid, None)
        else:
            before, since = self._nominated.get(uid, (pod, self._clock.monotonic()))
            same = before.status.nominated_node_name == node
            self._nominated[uid] = pod, since if same else self._clock.monotonic()

    def _runs_the_cluster(self, pod: Pod) -> bool:
        return runs_the_cluster(pod, labels=self._labels_of(pod.metadata.namespace), names=self._names)

    def _gone(self, pod: Pod) -> None:
        self._nominated.pop(pod.metadata.uid, None)
        self._told.pop(pod.metadata.uid, None)

    def _is_told(self, pod: Pod) -> bool:
        return pod.status.nominated_node_name in self._told.get(pod.metadata.uid, ())


def why_it_waits(pod: Pod, there: Sequence[Pod], *, names: Names) -> Notice | None:
    """Of one that is nominated: who of those there stays; None while somebody leaves, or nobody is kept."""
    node = pod.status.nominated_node_name
    if any(one.metadata.deletion_timestamp for one in there):
        return None
    kept = sorted(_kept_from(pod, there, names=names))
    if not kept:
        return None
    own = [name for namespace, name in kept if namespace == pod.metadata.namespace]
    yours = f" (of its own namespace: {', '.join(own[:_NAMED])}{', …' if own[_NAMED:] else ''})" if own else ""
    return Notice(
        reason="NobodyEvicted",
        message=f"kube-scheduler has chosen node {node} for it, and may not evict {counted(len(kept), 'pod')} with "
        f"slices there{yours}, which by priority alone nobody may (evictionByPriority: Deny); it waits until CPU or "
        "memory is free: ask for less of it, or end a pod of your own",
    )


def _kept_from(pod: Pod, there: Iterable[Pod], *, names: Names) -> Iterator[tuple[str, str]]:
    """Namespace and name of whom kube-scheduler would evict for it, and may not."""
    for one in there:
        if one.spec.priority < pod.spec.priority and not goes_by_priority(one, names=names):
            yield one.metadata.namespace, one.metadata.name
