"""Evicts pods that use more than they were granted: their node's agent says so on them, and may evict nobody itself.

Who keeps inside before the grace is over stays, and so does whose queue goes less far. Disruption budgets hold, and
the pod's own grace: it is asked again until it goes, or its agent takes the word back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

from aliquot_core.instants import seconds_of
from aliquot_core.isolation import EVICT, is_over_use
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_scheduler.centre.evictions import Answer, Evictions
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.put_off import PutOff
from aliquot_scheduler.queues.telling.notices import Notice

# Grace is counted in whole seconds of two machines' clocks.
_LOOK = 5.0


def overdue(
    pods: Iterable[Pod], *, names: Names, wall: float, grace: float, word: Callable[[str], str]
) -> Iterator[tuple[Pod, str]]:
    """The pods whose grace is over, with what was said of them. Pure."""
    for pod in pods:
        said = is_over_use(pod, names=names)
        if said is None or pod.ended or not pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            continue
        if word(pod.metadata.uid) not in {"", EVICT}:
            continue  # its agent may not know of that yet
        since = seconds_of(said.last_transition_time)
        if since is not None and wall - since >= grace:
            yield pod, said.message


class OverUseEvictor:
    """Carries it out, for whoever leads."""

    def __init__(
        self,
        *,
        grace: float,
        evictions: Evictions,
        means: Means,
        word: Callable[[str], str],
    ) -> None:
        """`word` is how far a pod's queue goes (by the pod's UID); empty if that is its node's to say."""
        self._clock = means.clock
        self._names = means.names
        self._grace = grace
        self._evictions = evictions
        self._word = word
        # By UID, whom agents have given up.
        self._given_up: dict[str, Pod] = {}
        self._why_not = means.why_not
        self._unjudged = PutOff(what="whether a pod is to go for over-use could not be told", means=means)
        # How many went.
        self.evicted = 0

    @property
    def untold(self) -> int:
        """How often that could not be told of one."""
        return self._unjudged.count

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take in what the watch tells: of thousands of pods next to none is to be looked at again."""
        match change:
            case Deleted(old=pod):
                self._given_up.pop(pod.metadata.uid, None)
            case Modified(old=old, new=pod) if old.metadata.uid != pod.metadata.uid:
                self._given_up.pop(old.metadata.uid, None)
                self._seen(pod)
            case Added(new=pod) | Modified(new=pod):
                self._seen(pod)

    def _seen(self, pod: Pod) -> None:
        if is_over_use(pod, names=self._names):
            self._given_up[pod.metadata.uid] = pod
        else:
            self._given_up.pop(pod.metadata.uid, None)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK)
            asked: set[str] = set()
            self._unjudged.look_begins()
            while not self._why_not() and (due := self._next(but=asked)) is not None:
                pod, said = due
                asked.add(pod.metadata.uid)
                answer = await self._evictions.ask(pod, why=Notice(reason="OverUse", message=said))
                self.evicted += answer is Answer.TAKEN
                if answer is Answer.CUT_OFF:
                    break

    def _next(self, *, but: Collection[str]) -> tuple[Pod, str] | None:
        """By the last word on each: while one is asked, another's agent may take its word back."""
        pods = (pod for uid, pod in self._given_up.items() if uid not in but)
        judged = (self._unjudged.attempt(pod.metadata.uid, partial(self._due, pod), of=pod.key) for pod in pods)
        return next(filter(None, judged), None)

    def _due(self, pod: Pod) -> tuple[Pod, str] | None:
        due = overdue([pod], names=self._names, wall=self._clock.wall(), grace=self._grace, word=self._word)
        return next(due, None)
