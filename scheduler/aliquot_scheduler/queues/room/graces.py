"""How long whoever has to go for others may take for it, by its own word and by the operator's.

A pod says itself how long its end may take (`terminationGracePeriodSeconds`), and whoever deletes it may say so too: a
day, if they like. An owner that takes back what it lent waits for no more than the operator's setting
(`queues.max_grace`): victims are asked to be gone within that, and of those who leave by themselves only they count as
gone who are so within it. Any other on the way out is treated as one that stays, and is asked to hurry.
"""

from __future__ import annotations

from aliquot_core.instants import seconds_of
from aliquot_core.objects import Pod

# Who is on the way out for so much longer than was said does not go: the node has lost touch, or the process hangs.
OVERDUE = 60.0
# What Kubernetes gives a pod that says nothing of it.
_GRACE = 30


def grace_of(pod: Pod, *, most: int) -> int:
    """Within how many seconds it is gone once it is asked to go."""
    said = pod.spec.termination_grace_period_seconds
    return min(most, max(0, _GRACE if said is None else said))


def grace_to_ask(pod: Pod, *, most: int, wall: float) -> int | None:
    """What an eviction has to say of it; None where the pod's own word will do.

    Of one that leaves already the API server counts from when it was asked first.
    """
    if pod.metadata.deletion_timestamp:
        return _been_leaving(pod, wall=wall) + grace_of(pod, most=most) if is_slow(pod, most=most) else None
    own = pod.spec.termination_grace_period_seconds
    return most if own is not None and own > most else None


def gone_by(pod: Pod) -> float | None:
    """When one that leaves is to be gone, by the clock on the wall; None if it stays, or nobody can say."""
    return seconds_of(pod.metadata.deletion_timestamp)


def is_slow(pod: Pod, *, most: int) -> bool:
    """Whether it leaves, and was given more time for it than it is waited for."""
    return pod.metadata.deletion_timestamp is not None and (pod.metadata.deletion_grace_period_seconds or 0) > most


def is_leaving(pod: Pod, *, wall: float, most: int) -> bool:
    """Whether it is on the way out, is gone soon, and is not there for longer than was said."""
    gone = gone_by(pod)
    # The API server's clock may be a little ahead of ours.
    return gone is not None and wall - OVERDUE < gone <= wall + most + OVERDUE


def stays(pod: Pod, *, wall: float, most: int) -> bool:
    """Whether nothing tells yet that it goes, or that it goes in time."""
    return not is_leaving(pod, wall=wall, most=most) and not is_overdue(pod, wall=wall)


def is_overdue(pod: Pod, *, wall: float) -> bool:
    """Whether it was to be gone by now, and a good while ago."""
    if pod.metadata.deletion_timestamp is None:
        return False
    gone = gone_by(pod)
    return gone is None or wall >= gone + OVERDUE


def _been_leaving(pod: Pod, *, wall: float) -> int:
    gone, given = gone_by(pod), pod.metadata.deletion_grace_period_seconds
    return 0 if gone is None or given is None else max(0, int(wall - (gone - given)))
