"""Who makes the pods of a group that stand in line, and who of them makes as many as the whole group has.

Two Jobs of one name may wait at once. Whoever has the whole group here by itself starts with its own pods alone,
whatever order they came in: else some of each would be in, and wait for cards that the others hold. A launcher and its
workers, of two Jobs, are as many as the group has only together, and so start together.
"""

from __future__ import annotations

from collections import Counter

from aliquot_core.objects import OwnerReference, Pod
from aliquot_scheduler.queues.waiting.waiter import Waiter

# Queue, the group with all that is said of it and whose it is, and who makes it.
_Made = tuple[object, ...]
# A Deployment's pods say so of the ReplicaSet that makes them.
_HASH = "pod-template-hash"


class Makers:
    """How many pods each has in line."""

    def __init__(self) -> None:
        self._counts = Counter[_Made]()
        # By UID.
        self._counted: dict[str, _Made] = {}

    def counts(self, waiter: Waiter) -> bool:
        """Whether one is counted as it is."""
        made = self._counted.get(waiter.uid)
        return made is not None and made == _made(waiter)

    def come(self, waiter: Waiter) -> bool:
        """One stands in line; whether from now on its maker needs nobody else's."""
        made = _made(waiter)
        if made is None or waiter.group is None or waiter.uid in self._counted:
            return False
        self._counted[waiter.uid] = made
        self._counts[made] += 1
        return self._counts[made] == waiter.group.size

    def go(self, waiter: Waiter) -> bool:
        """It does not any more; whether from now on its maker needs others' again."""
        made = self._counted.pop(waiter.uid, None)
        if made is None or waiter.group is None:
            return False
        self._counts[made] -= 1
        left = self._counts[made]
        if not left:
            del self._counts[made]
        return left == waiter.group.size - 1

    def alone(self, waiter: Waiter) -> str:
        """Who makes one, if there are as many of that maker as the group has; else nothing."""
        if (made := _made(waiter)) is None or waiter.group is None or self._counts[made] < waiter.group.size:
            return ""
        return maker_of(waiter.pod)

    def clear(self) -> None:
        """Nobody stands in line."""
        self._counts.clear()
        self._counted.clear()


def _made(waiter: Waiter) -> _Made | None:
    maker, gang = maker_of(waiter.pod), waiter.gang
    return (waiter.queue, *gang[:5], maker) if gang and maker else None


def controller(pod: Pod) -> OwnerReference | None:
    """Whoever makes another when this one is gone, if anybody does."""
    return next((one for one in pod.metadata.owner_references if one.controller), None)


def maker_of(pod: Pod) -> str:
    """Who makes it; of a Deployment's pods that is the Deployment, whichever of its ReplicaSets made them."""
    if (owner := controller(pod)) is None:
        return ""
    end = f"-{pod.metadata.labels.get(_HASH, '')}"
    return owner.name.removesuffix(end) if owner.kind == "ReplicaSet" and _HASH in pod.metadata.labels else owner.uid
