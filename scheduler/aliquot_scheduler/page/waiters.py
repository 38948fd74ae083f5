"""Who waits, as the page shows it: those who come first in each queue with their reason, of the others their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence

from aliquot_scheduler.page.model import WaitingShown
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from aliquot_scheduler.queues.telling.named import with_names
from aliquot_scheduler.queues.telling.notices import Notice
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.waiter import Waiter

# One step's worth: about a millisecond of work.
_AT_ONCE = 64
# Reasons are worked out for so many; the others are counted under a word of their own.
_MOST = 1000
_UNHEARD = "Unheard"
_NOT_SHOWN = "not looked at"


def waiting_shown(
    waiters: Sequence[Waiter], turns: Queues, *, deaf: str
) -> Generator[None, None, tuple[list[WaitingShown], Counter[str]]]:
    """Those who come first in each queue, and how many wait for which reason.

    While the API server is not heard all wait for that: what else would be said is of a picture that stands still.
    """
    found: list[WaitingShown] = []
    reasons: Counter[str] = Counter()
    # Whoever looks may see all pods.
    names = {waiter.uid: waiter.pod.key for waiter in waiters}
    ordered = sorted(waiters, key=lambda waiter: (waiter.queue, waiter.place))
    for number, waiter in enumerate(ordered[:_MOST]):
        if not number % _AT_ONCE:
            yield
        notice = (
            Notice(reason=_UNHEARD, message=f"{deaf}: nobody is placed meanwhile") if deaf else turns.notice(waiter)
        )
        reasons[notice.reason] += 1
        found.append(_shown(waiter, reason=notice.reason, why=with_names(notice.message, names)))
    if rest := len(ordered) - len(found):
        reasons[_NOT_SHOWN] = rest
    return found, reasons


def placing_shown(waiter: Waiter) -> WaitingShown:
    """Its queue has let it in; what kube-scheduler says of it."""
    said = next((one.message for one in waiter.pod.status.conditions if one.type == "PodScheduled"), "")
    return _shown(waiter, reason="Placing", why=said or "its turn has come, and kube-scheduler places it")


def _shown(waiter: Waiter, *, reason: str, why: str) -> WaitingShown:
    return WaitingShown(
        pod=waiter.pod.key,
        queue=waiter.queue,
        user=waiter.user,
        priority=waiter.priority,
        since=waiter.pod.metadata.creation_timestamp or "",
        compute=waiter.amounts[COMPUTE],
        memory=waiter.amounts[MEMORY],
        reason=reason,
        why=why,
    )
