"""What of a pod may no longer change, how far it may hold itself back meanwhile, and how it comes in."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest

from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.validation import judge_bound, judge_change, judge_entry
from aliquot_scheduler.admission.verdict import Verdict
from support.admitting import NAMES, Json, container, decoded, mutated, written
from support.judging import problems, warnings

FROZEN = [
    *(("annotations", key) for key in ("gpus", "gpu-model", "gpu-uuid", "placement", "isolation", "compute-limit")),
    *(("annotations", key) for key in ("preemptible", "group-size", "group-min", "group-topology")),
    *(("labels", key) for key in ("use", "queue", "group")),
]


@pytest.mark.parametrize("key", ["compute-now", "memory-now"])
def test_how_far_a_pod_holds_itself_back_may_change_at_any_time(key: str) -> None:
    """Before it is bound and after; what is no amount is refused, and nothing of it is strange."""
    for node in ("", "n1"):
        assert changed("annotations", key, node=node) == []
    wrong = written(container(compute="30"), notes={key: "a lot"}, nodeName="n1")
    bare = written(container(compute="30"), nodeName="n1")
    said = [str(problem) for problem in judge_change(decoded(wrong), old=decoded(bare), names=NAMES)]
    assert said == [f"annotation aliquot.dev/{key}: {NO_AMOUNT[key]}"]
    assert problems(written(container(compute="30"), notes={key: "a lot"})) == said
    for old in (bare, wrong):
        assert judge_bound(decoded(wrong), old=decoded(old), names=NAMES, settings=AdmissionSettings()) == Verdict()


LEAST = AdmissionSettings().least_memory
AFTER = "what can be had of it is in force"
OF_MAIN = "container main, annotation aliquot.dev"
# What a pod asks and says, and what is told of that, by annotation.
HELD_BACK: dict[str, tuple[Json, dict[str, str]]] = {
    "within": (written(container(compute="30", memory="8k"), notes={"memory-now": "8000", "compute-now": "30"}), {}),
    "as far as it may burst": (
        written(container(compute="30"), notes={"compute-limit": "80", "compute-now": "80"}), {}
    ),
    "just a context": (written(container(compute="30", memory="8k"), notes={"memory-now": str(LEAST)}), {}),
    "more memory": (
        written(container(compute="30", memory="8k"), notes={"memory-now": "8001"}),
        {"memory-now": "8001 MiB are more than the 8000 that it asks"},
    ),
    "memory that is not known yet": (written(container(compute="30"), notes={"memory-now": "800000"}), {}),
    "less than a context": (
        written(container(compute="30", memory="8k"), notes={"memory-now": str(LEAST - 1)}),
        {"memory-now": f"{LEAST - 1} MiB are less than the {LEAST} that a CUDA context takes"},
    ),
    "less than a context on each of two GPUs": (
        written(container(compute="30", memory="8k"), notes={"gpus": "2", "memory-now": str(2 * LEAST - 1)}),
        {"memory-now": f"{2 * LEAST - 1} MiB are less than the {2 * LEAST} that a CUDA context takes"},
    ),
    "further than it may burst": (
        written(container(compute="30"), notes={"compute-now": "31"}),
        {"compute-now": "31 % are more than its limit of 30"},
    ),
    "best effort, further than a GPU": (
        written(container(memory="8k"), notes={"compute-now": "101"}),
        {"compute-now": "101 % are more than its limit of 100"},
    ),
    "less than its compute, and more memory": (
        written(container(compute="30", memory="8k"), notes={"compute-now": "29", "memory-now": "9000"}),
        {
            "memory-now": "9000 MiB are more than the 8000 that it asks",
            "compute-now": "29 % are less than its compute of 30, which nobody takes from it",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", HELD_BACK)
def test_what_a_pod_can_t_have_of_what_it_says_is_told_at_once(row: str) -> None:
    """When it is created, by what it asks."""
    pod, told = HELD_BACK[row]
    assert warnings(pod) == [f"container main, annotation {NAMES.of(key)}: {why}; {AFTER}" for key, why in told.items()]


def test_a_pod_that_asks_for_nothing_holds_nothing_back() -> None:
    """Said in vain, as all else that is said of slices."""
    pod = written(container(), notes={"memory-now": "500"})
    asks = f"no container asks for {NAMES.compute} or {NAMES.memory}"
    assert warnings(pod) == [f"annotation {NAMES.memory_now} does nothing: {asks}"]


# What a bound pod says, how its slices are held, and what is told of that.
GRANTED: dict[str, tuple[dict[str, str], str, list[str]]] = {
    "within": ({"memory-now": "4000", "compute-now": "80"}, "interposer", []),
    "more than granted": (
        {"memory-now": "4001"},
        "interposer",
        [f"{OF_MAIN}/memory-now: 4001 MiB are more than the 4000 that it was granted; {AFTER}"],
    ),
    "further than its limit": (
        {"compute-now": "81"},
        "interposer",
        [f"{OF_MAIN}/compute-now: 81 % are more than its limit of 80; {AFTER}"],
    ),
    "by limits that stay": (
        {"memory-now": "3000", "compute-now": "50"},
        "mps",
        [f"annotation aliquot.dev/{key} does nothing: its slices are held by mps, whose limits don't change"
         for key in ("memory-now", "compute-now")],
    ),
    "nothing": ({}, "mps", []),
}  # fmt: skip


@pytest.mark.parametrize("row", GRANTED)
def test_what_a_bound_pod_can_t_have_is_told_by_its_grant(row: str) -> None:
    """When it says so, and not again with each other change."""
    notes, mode, told = GRANTED[row]
    part = Slice(gpu="GPU-1", compute=Percent(30), limit=Percent(80), memory=MiB(4000))
    grant = Grant(node="n1", pod="u", containers={"main": ContainerGrant(slices=(part,), isolation=mode)})
    granted = {"grant": encode_grant(grant)}
    pod, old = (
        decoded(written(container(compute="30"), notes={**granted, **said}, nodeName="n1")) for said in (notes, {})
    )
    assert list(judge_bound(pod, old=old, names=NAMES, settings=AdmissionSettings()).warnings) == told
    assert judge_bound(pod, old=pod, names=NAMES, settings=AdmissionSettings()) == Verdict()
    bare = decoded(written(container(compute="30"), notes=notes, nodeName="n1"))
    assert judge_bound(bare, old=old, names=NAMES, settings=AdmissionSettings()) == Verdict()


NO_AMOUNT = {
    "compute-now": "'a lot' is not a number; write whole percent in digits",
    "memory-now": "'a lot' is not a number; write whole MiB in digits",
}


def changed(section: str, key: str, *, node: str, gates: Sequence[Mapping[str, str]] = ()) -> list[str]:
    """The problems of a change, of an addition, and of a removal."""
    bare, one, two = (written(container(compute="30"), nodeName=node, schedulingGates=list(gates)) for _ in range(3))
    one["metadata"][section], two["metadata"][section] = {NAMES.of(key): "1"}, {NAMES.of(key): "2"}
    pods: list[Pod] = [decoded(bare), decoded(one), decoded(two), decoded(bare)]
    return [
        str(problem) for old, new in itertools.pairwise(pods) for problem in judge_change(new, old=old, names=NAMES)
    ]


@pytest.mark.parametrize(("section", "key"), FROZEN)
def test_what_a_grant_was_made_from_stands_once_the_pod_is_bound(section: str, key: str) -> None:
    """Neither added nor changed nor removed; while it waits it may be mended."""
    problem = f"{section[:-1]} aliquot.dev/{key}: can't change any more: the pod has its place;"
    assert changed(section, key, node="n1") == [f"{problem} delete the pod, and create it anew"] * 3
    late = "label aliquot.dev/use: is read when a pod is created, and this one asks for a slice;"
    assert changed(section, key, node="", gates=[{"name": NAMES.gate}]) == (
        [f"{late} delete the pod, and create it anew"] * 3 if key == "use" else []
    )


@pytest.mark.parametrize(("section", "key"), FROZEN)
def test_by_what_right_a_pod_was_let_in_stands_once_its_gate_is_gone(section: str, key: str) -> None:
    """Who may never be evicted comes in within a guarantee alone, so nobody becomes so between turn and binding."""
    problem = f"{section[:-1]} aliquot.dev/{key}: can't change any more: the pod has had its turn;"
    frozen = key in ("preemptible", "group", "group-size", "group-min", "group-topology")
    others = [{"name": "example.com/other"}]
    for gates in ([], others):
        found = [said for said in changed(section, key, node="", gates=gates) if "is read when" not in said]
        assert found == ([f"{problem} delete the pod, and create it anew"] * 3 if frozen else [])


def test_other_annotations_may_change_at_any_time() -> None:
    """Ours and everybody's."""
    assert changed("annotations", "note", node="n1") == []


def test_a_pod_must_come_in_behind_the_gate() -> None:
    """Without it, or with a node, it would pass its queue by."""
    pod = written(container(compute="30"))
    ungated = "scheduling gate aliquot.dev/queue: asks for a slice, but does not wait behind its gate"
    for wrong in (pod, {**mutated(pod), "spec": {**mutated(pod)["spec"], "nodeName": "n1"}}):
        (problem,) = judge_entry(decoded(wrong), names=NAMES, settings=AdmissionSettings())
        assert str(problem).startswith(ungated)
    assert list(judge_entry(decoded(mutated(pod)), names=NAMES, settings=AdmissionSettings())) == []
