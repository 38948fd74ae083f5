"""Which pods of a job have ended, counted each exactly once, whoever dies in between. Pure.

Theory of operation, as Kubernetes has it. A pod of a job bears a finalizer, so it can't vanish before it was counted:
 1. one that has ended is written into `uncountedTerminatedPods` of the job's status;
 2. its finalizer is taken away;
 3. its entry goes, and the counter grows, in the same write.
What must always hold: counter + entries = pods that have ended, at every instant and after every restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from aliquot_standalone.controllers.objects import Job, Uncounted, WorkPod


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """A job's pods, counted."""

    # What goes into the status.
    succeeded: int
    failed: int
    uncounted: Uncounted
    indexes: frozenset[int]
    # Pods whose finalizer may go once the status is written.
    release: Sequence[WorkPod]

    @property
    def all_failed(self) -> int:
        """Counted and to be counted."""
        return self.failed + len(self.uncounted.failed)


def counted(job: Job, pods: Iterable[WorkPod]) -> Counts:
    """Count a job's pods."""
    pods = list(pods)
    before = job.status.uncounted_terminated_pods
    tracked = {pod.metadata.uid for pod in pods if pod.tracked}
    succeeded = _tracked(pod for pod in pods if pod.succeeded)
    failed = _tracked(pod for pod in pods if pod.failed)
    done = frozenset(read_indexes(job.status.completed_indexes)) | _indexes(job, pods)
    entries = {*succeeded, *failed}
    return Counts(
        succeeded=len(done) if job.indexed else job.status.succeeded + _left(before.succeeded, tracked),
        failed=job.status.failed + _left(before.failed, tracked),
        uncounted=Uncounted(succeeded=succeeded, failed=failed),
        indexes=done,
        release=[pod for pod in pods if pod.tracked and pod.metadata.uid in entries],
    )


def _tracked(ended: Iterable[WorkPod]) -> tuple[str, ...]:
    # Those that are entries already are among them: what has ended stays so.
    return tuple(sorted(pod.metadata.uid for pod in ended if pod.tracked))


def _left(before: Sequence[str], tracked: set[str]) -> int:
    return sum(uid not in tracked for uid in before)


def _indexes(job: Job, pods: Iterable[WorkPod]) -> frozenset[int]:
    if not job.indexed:
        return frozenset()
    most = job.spec.completions or 0
    found = (pod.index for pod in pods if pod.succeeded and pod.tracked)
    return frozenset(index for index in found if index is not None and index < most)


def read_indexes(text: str) -> set[int]:
    """Read `0,2-4`."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def write_indexes(indexes: Iterable[int]) -> str:
    """Write `0,2-4`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
