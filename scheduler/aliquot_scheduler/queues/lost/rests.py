"""How long a pod rests whose turn led to nothing, or could not be told; and whose scheduler has never asked for any."""

from __future__ import annotations

from aliquot_core.backoff import Backoff, Random
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.lost.heard import Heard
from aliquot_scheduler.queues.lost.instants import AGAIN
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.waiter import Waiter

_AGAIN = Backoff(first=AGAIN, longest=300.0)
# Of a pod whose scheduler was never heard; it is woken once that asks for any pod.
_UNHEARD = Backoff(first=300.0, longest=300.0)
_TELL_AGAIN = Backoff(first=1.0, longest=60.0)


class Rests:
    """By pod (UID)."""

    def __init__(self, *, hall: Hall) -> None:
        self._hall = hall
        self.heard = Heard()
        # How often a turn of theirs has led to nothing, or could not be told.
        self.lost: dict[str, int] = {}
        self._untold: dict[str, int] = {}
        # Whose scheduler was never heard when their turn was over.
        self._unheard: set[str] = set()

    def forget(self, uid: str) -> None:
        """It waits for no turn any more."""
        self._unheard.discard(uid)
        for notes in (self.lost, self._untold):
            notes.pop(uid, None)

    def after_lost(self, pod: Pod, *, random: Random, now: float) -> float | None:
        """For how long it rests whose turn led to nothing; None if it lost nothing by that, and comes at once."""
        uid = pod.metadata.uid
        self.lost[uid] = self.lost.get(uid, 0) + 1
        unseen, again = _is_unseen(pod), _AGAIN
        if unseen and self._is_unheard(pod):
            again = _UNHEARD
        elif self.lost[uid] == 1 and unseen and self.heard.was_silent(now=now, lately=PROMISE):
            # When the API server is back kube-scheduler stays blind for longer than we do. Only once.
            return None
        return again.delay(failures=self.lost[uid], random=random)

    def after_untold(self, uid: str, *, random: Random) -> float:
        """For how long it rests that could not be told of its turn."""
        self._untold[uid] = self._untold.get(uid, 0) + 1
        return _TELL_AGAIN.delay(failures=self._untold[uid], random=random)

    def is_nobodys_doing(self, pod: Pod, *, since: float, now: float) -> bool:
        """Whether a pod could not be bound since then for all schedulers were away; one that looked at it was not."""
        return _is_unseen(pod) and self.heard.is_away(pod.spec.scheduler_name, since=since, now=now)

    def rests_unheard(self, uid: str) -> bool:
        """Whether it rests since its scheduler was never heard."""
        return uid in self._unheard

    def unheard_pods(self) -> int:
        """How many rest for that; a scheduler that has asked meanwhile may have found one in its turn."""
        resting = filter(None, map(self._hall.resting, self._unheard))
        return sum(not self.heard.knows(waiter.pod.spec.scheduler_name) for waiter in resting)

    def woken(self, name: str, *, now: float) -> list[Waiter]:
        """A scheduler asks for a pod: if it was never heard before, who gave it up need not rest any longer."""
        if not self.heard.asked(name, now=now):
            return []
        resting = filter(None, map(self._hall.resting, sorted(self._unheard)))
        found = [waiter for waiter in resting if waiter.pod.spec.scheduler_name == name]
        self._unheard.difference_update(waiter.uid for waiter in found)
        return found

    def _is_unheard(self, pod: Pod) -> bool:
        """Whether its scheduler has never asked for any pod; if so it is noted, to be woken by that."""
        if not self.heard.knows(pod.spec.scheduler_name):
            self._unheard.add(pod.metadata.uid)
        return pod.metadata.uid in self._unheard


def _is_unseen(pod: Pod) -> bool:
    """Whether no scheduler has looked at the pod since it had a gate: whoever looks in vain says so in its place."""
    return any((one.type, one.reason) == ("PodScheduled", "SchedulingGated") for one in pod.status.conditions)
