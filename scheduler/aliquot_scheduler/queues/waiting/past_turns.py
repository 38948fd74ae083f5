"""What came of turns of those who wait, and since when they do; whose scheduler has never asked for any pod."""

from __future__ import annotations

from aliquot_core.objects import Pod
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.heard import Heard
from aliquot_scheduler.queues.waiting.waiter import Waiter


class PastTurns:
    """By pod (UID)."""

    def __init__(self, *, hall: Hall) -> None:
        self._hall = hall
        self.heard = Heard()
        # How often a turn of theirs has led to nothing, or could not be told; since when those wait who do.
        self.lost: dict[str, int] = {}
        self.untold: dict[str, int] = {}
        self.joined: dict[str, float] = {}
        # Whose scheduler was never heard when their turn was over.
        self._unheard: set[str] = set()

    def forget(self, uid: str) -> None:
        """It waits for no turn any more."""
        self._unheard.discard(uid)
        for notes in (self.lost, self.untold, self.joined):
            notes.pop(uid, None)

    def is_unheard(self, pod: Pod) -> bool:
        """Whether its scheduler has never asked for any pod; if so it is noted, to be woken by that."""
        if not self.heard.knows(pod.spec.scheduler_name):
            self._unheard.add(pod.metadata.uid)
        return pod.metadata.uid in self._unheard

    def rests_unheard(self, uid: str) -> bool:
        """Whether it rests for that."""
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
