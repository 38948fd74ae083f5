"""Each pod of a job is counted once, in whatever order things happen and wherever the counting is broken off."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from aliquot_standalone.controllers.job_counts import counted, read_indexes, write_indexes
from aliquot_standalone.controllers.objects import TRACKING, Job, JobSpec, JobStatus, OwnedMeta, WorkPod

STEPS = st.lists(st.tuples(st.sampled_from(["end", "write", "release", "vanish"]), st.integers(0, 4)), max_size=60)


def pod(uid: str, *, phase: str = "Running", tracked: bool = True) -> WorkPod:
    """A pod of the job."""
    metadata = {"uid": uid, "name": uid, "finalizers": [TRACKING] if tracked else []}
    return msgspec.convert({"metadata": metadata, "status": {"phase": phase}}, WorkPod)


@given(STEPS)
def test_counter_and_entries_are_always_all_that_have_ended(steps: list[tuple[str, int]]) -> None:
    """After each write the job's status accounts for every pod that had ended by then, and for none twice."""
    job = Job(metadata=OwnedMeta(uid="job", name="job"), spec=JobSpec(completions=9))
    pods = {str(number): pod(str(number)) for number in range(5)}
    ended: dict[str, str] = {}
    for what, number in steps:
        uid = str(number)
        if what == "end" and uid in pods and uid not in ended:
            ended[uid] = "Failed" if number % 2 else "Succeeded"
            pods[uid] = pod(uid, phase=ended[uid])
        elif what == "write":
            counts = counted(job, list(pods.values()))
            status = JobStatus(
                succeeded=counts.succeeded, failed=counts.failed, uncounted_terminated_pods=counts.uncounted
            )
            job = msgspec.structs.replace(job, status=status)
            entries = counts.uncounted
            assert counts.succeeded + len(entries.succeeded) == list(ended.values()).count("Succeeded")
            assert counts.failed + len(entries.failed) == counts.all_failed == list(ended.values()).count("Failed")
        elif what == "release":
            # Only what is written down may be let go; here one at a time, as a controller that dies would leave it.
            entries = job.status.uncounted_terminated_pods
            if uid in {*entries.succeeded, *entries.failed} and uid in pods:
                pods[uid] = pod(uid, phase=ended[uid], tracked=False)
        elif what == "vanish" and uid in pods and not pods[uid].tracked:
            del pods[uid]


@given(st.sets(st.integers(0, 40)))
def test_indexes_are_written_in_runs_and_read_again(indexes: set[int]) -> None:
    """What is written is read as the same set."""
    assert read_indexes(write_indexes(indexes)) == indexes


def test_runs_are_as_kubernetes_writes_them() -> None:
    """Single ones alone, runs with a dash."""
    assert write_indexes({0, 2, 3, 4, 7, 8}) == "0,2-4,7-8"
