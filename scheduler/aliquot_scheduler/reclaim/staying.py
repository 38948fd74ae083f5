"""Who lies on a GPU that fails and stays there, and why: worked out once a minute, whoever is moved meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.room.refuges import controller_of
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.waiter import Waiter
from aliquot_scheduler.reclaim.foreseen import why_not_elsewhere
from aliquot_scheduler.reclaim.look import Look
from aliquot_scheduler.reclaim.moving import Mover
from aliquot_scheduler.reclaim.pauses import Pauses
from aliquot_scheduler.reclaim.scene import failing_gpus

# A search for each.
_EACH = 60.0


class Staying:
    """What each of them is told."""

    def __init__(self, *, queues: Queues, picture: Picture, pauses: Pauses) -> None:
        self._queues = queues
        self._picture = picture
        self._pauses = pauses
        self._at = 0.0
        # By UID.
        self.told: Mapping[str, str] = {}

    def is_due(self, now: float) -> bool:
        """Whether it may be otherwise by now."""
        return now >= self._at

    def tell(self, look: Look, mover: Mover) -> None:
        """Work it out anew."""
        self._at = look.now + _EACH
        told = ((one.uid, self._why(one, look, mover)) for one in self._on_failing())
        self.told = {uid: why for uid, why in told if why}

    def forget(self) -> None:
        """Nobody lies on such a one."""
        self._at, self.told = 0.0, {}

    def _on_failing(self) -> Iterator[Waiter]:
        bound, on = self._queues.register.inside.bound, self._picture.holdings.on
        uids = dict.fromkeys(uid for gpu in sorted(failing_gpus(self._picture)) for uid in on(gpu))
        return (bound[uid] for uid in uids if uid in bound)

    def _why(self, waiter: Waiter, look: Look, mover: Mover) -> str:
        """Empty if it may go soon, or goes."""
        if waiter.pod.metadata.deletion_timestamp or waiter.uid in self._queues.register.refuges.movers():
            return ""
        if why := _why_never(waiter):
            return why
        if (one := look.residents.by_uid.get(waiter.uid)) is None:
            return ""
        if self._pauses.is_left_alone(one.uid, controller_of(waiter.pod), now=look.now):
            return "one of its controller was moved lately, and it is left alone for a while"
        if not look.residents.let_go({one.uid}):
            return f"it is kept by PodDisruptionBudget {', '.join(look.residents.budgets_over(one))}"
        return mover.why_not_moved(one)


def _why_never(waiter: Waiter) -> str:
    """Why it is never moved, wherever there is room; empty if it may be."""
    if waiter.shape.firm:
        return "it is never to be evicted (preemptible: false)"
    return why_not_elsewhere(waiter)
