"""What is refused is refused so that it can be mended, all of it at once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.counting import NAMED
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.modes import MODES
from aliquot_core.objects import Pod
from aliquot_core.quantities import NO_COMPUTE, MiB, Percent
from aliquot_core.request import ContainerRequest, Kind
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.validation import judge, judge_bound, judge_change, judge_entry
from aliquot_scheduler.admission.verdict import Verdict
from aliquot_scheduler.fit.demand import least_memory
from aliquot_scheduler.picture.there import Models, There, there_in
from support.admitting import NAMES, Json, container, decoded, mutated, written
from support.centre import gpus, make_node, picture_with

A100 = ("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", "A100-SXM4-80GB")
L4 = ("NVIDIA L4", "NVIDIA-L4", "L4")


def problems(pod: Json, *, models: Models = (), **settings: Any) -> list[str]:
    """Every problem as its author reads it."""
    verdict = judge(decoded(pod), names=NAMES, settings=AdmissionSettings(**settings), there=There(models=models))
    return [str(problem) for problem in verdict.problems]


def warnings(pod: Json, *, models: Models = (), there: There | None = None) -> list[str]:
    """What is said of a pod that may come in."""
    known = there or There(models=models)
    verdict = judge(decoded(pod), names=NAMES, settings=AdmissionSettings(), there=known)
    assert verdict.problems == ()
    return list(verdict.warnings)


FINE = {
    "compute and memory": written(container(compute="30", memory="8k")),
    "memory left out": written(container(compute="30")),
    "compute left out": written(container(memory="8k")),
    "two and a half GPUs": written(container(compute="250", memory="30000")),
    "the same requests": written(container(compute="30", requests={"compute": "30"})),
    "no slice": written(container()),
    "declined, whatever a LimitRange wrote": written(container(compute="0"), labels={"use": "none"}),
    "as little memory as a context needs": written(container(compute="30", memory="300")),
    "on each of two GPUs": written(container(compute="30", memory="600"), notes={"gpus": "2"}),
}


@pytest.mark.parametrize("row", FINE)
def test_what_can_be_meant_passes(row: str) -> None:
    """No problem, and nothing to be warned of, before and after the defaults."""
    for pod in (FINE[row], mutated(FINE[row])):
        assert (problems(pod), warnings(pod)) == ([], [])


BAD: dict[str, tuple[Json, str]] = {
    "a unit in a resource that counts MiB": (
        written(container(compute="30", memory="8Gi")),
        (
            "container main, aliquot.dev/memory: 8Gi has a unit of its own, but the number counts MiB already;"
            " write 8192 for 8Gi"
        ),
    ),
    "no compute": (
        written(container(compute="0")),
        "container main, aliquot.dev/compute: 0 is less than 1; write at least 1, or leave it out",
    ),
    "negative compute": (
        written(container(compute="-5")),
        "container main, aliquot.dev/compute: -5 is less than 1; write at least 1, or leave it out",
    ),
    "half a percent": (
        written(container(compute="500m")),
        "container main, aliquot.dev/compute: 500m is not a whole number; write whole percent",
    ),
    "more than 100 on each of two GPUs": (
        written(container(compute="250"), notes={"gpus": "2"}),
        "container main: 250 % does not fit on 2 GPUs; ask for at most 200, or raise aliquot.dev/gpus to 3",
    ),
    "request and limit differ": (
        written(container(memory="900", requests={"memory": "800"})),
        "container main, aliquot.dev/memory: request 800 is not limit 900; drop the request",
    ),
    "too little for a context": (
        written(container(compute="30", memory="299")),
        (
            "container main, aliquot.dev/memory: 299 MiB is less than a CUDA context needs, 300 MiB on each GPU;"
            " write at least 300"
        ),
    ),
    "too little on one of two GPUs": (
        written(container(compute="30", memory="599"), notes={"gpus": "2"}),
        (
            "container main, aliquot.dev/memory: 599 MiB is less than a CUDA context needs, 300 MiB on each GPU,"
            " and leaves 299 on one of its 2 GPUs; write at least 600"
        ),
    ),
    "too little on the last of three GPUs": (
        written(container(compute="250", memory="1495")),
        (
            "container main, aliquot.dev/memory: 1495 MiB is less than a CUDA context needs, 300 MiB on each GPU,"
            " and leaves 299 on one of its 3 GPUs; write at least 1496"
        ),
    ),
    "too little for best effort": (
        written(container(memory="100")),
        (
            "container main, aliquot.dev/memory: 100 MiB is less than a CUDA context needs, 300 MiB on each GPU;"
            " write at least 300"
        ),
    ),
    "a group that does not say its size": (
        written(container(compute="30"), labels={"group": "g"}),
        (
            "label aliquot.dev/group: group 'g' does not say how many pods it has; set the annotation"
            " aliquot.dev/group-size"
        ),
    ),
    "a bad annotation": (
        written(container(compute="30"), notes={"placement": "near"}),
        "annotation aliquot.dev/placement: 'near' is unknown; write pack or spread",
    ),
    "a grace for ever": (
        written(container(compute="30"), terminationGracePeriodSeconds=2**63 - 1),
        f"spec.terminationGracePeriodSeconds: {2**63 - 1} s is longer than a week; write at most 604800",
    ),
    "a bad annotation, though nothing asks": (
        written(container(), notes={"placement": "near"}),
        "annotation aliquot.dev/placement: 'near' is unknown; write pack or spread",
    ),
}


@pytest.mark.parametrize("row", BAD)
def test_what_can_t_be_meant_is_refused(row: str) -> None:
    """With its place, what is wrong and what to write; the defaults change nothing about it."""
    pod, problem = BAD[row]
    assert problems(pod) == [problem]
    assert problems(mutated(pod)) == [problem]


def test_a_pod_that_names_a_slice_is_refused() -> None:
    """It would never start: the agent refuses it too."""
    pod = written(container(compute="30"))
    pod["metadata"]["annotations"] = {"cdi.k8s.io/mine": "aliquot.dev/slice=t0"}
    assert problems(pod) == [
        (
            "annotation cdi.k8s.io/mine: aliquot.dev/slice=t0: names a slice, but slices are given by their grant;"
            " remove it"
        )
    ]


@pytest.mark.parametrize("beside", [{}, {"compute": "30"}])
def test_a_resource_that_no_node_has_is_refused(beside: dict[str, Any]) -> None:
    """The pod would wait for it for ever; under requests too, and whatever else it asks."""
    for strange in (container(**beside, memroy="8000"), container(**beside, requests={"memroy": "8000"})):
        assert problems(written(strange))[-1] == (
            "container main, aliquot.dev/memroy: no node has such a resource; did you mean aliquot.dev/memory?"
        )
    (said,) = problems(written(container(**beside, vram="1")))
    assert said.endswith("there are aliquot.dev/compute, aliquot.dev/memory, aliquot.dev/best-effort")


def test_everything_is_said_at_once() -> None:
    """Of every container, and beside what only the centre knows."""
    pod = written(
        container("a", compute="0"),
        container("b", memory="8Gi"),
        container("c", memory="9"),
        notes={"isolation": "A B"},
    )
    assert [problem.partition(":")[0] for problem in problems(pod)] == [
        "container a, aliquot.dev/compute",
        "container b, aliquot.dev/memory",
        "annotation aliquot.dev/isolation",
        "container c, aliquot.dev/memory",
    ]


def test_an_operator_says_what_a_context_needs() -> None:
    """Nothing at all, where 0 is set."""
    assert problems(written(container(compute="30", memory="1")), least_memory=0) == []
    assert len(problems(written(container(compute="30", memory="499")), least_memory=500)) == 1


@given(compute=st.integers(0, 6400), gpus=st.integers(1, 64) | st.none(), least=st.integers(1, 2000))
def test_the_least_memory_is_enough_and_no_more(compute: int, gpus: int | None, least: int) -> None:
    """What the remedy says leaves every GPU what a context needs; one MiB less does not."""
    gpus = min(gpus, compute) if gpus and compute else None

    def smallest(memory: int) -> int:
        asked = ContainerRequest(
            name="main",
            kind=Kind.APP,
            compute=Percent(compute) if compute else NO_COMPUTE,
            limit=Percent(compute or 100),
            memory=MiB(memory),
            gpus=gpus,
        )
        wanted.append(least_memory(asked, least=least))
        return min(share.memory.value for share in asked.shares if share.memory is not None)

    wanted: list[int] = []
    smallest(least)
    (needed,) = set(wanted)
    assert smallest(needed) >= least
    assert needed == 1 or smallest(needed - 1) < least


# --- warnings --------------------------------------------------------------------------------------------------------


def test_a_model_that_nobody_has_is_told_with_those_there_are() -> None:
    """A node with it may come, so the pod may wait; any name of a model will do."""
    pod = written(container(compute="30"), notes={"gpu-model": "H100*"})
    assert warnings(pod, models=[A100, L4]) == [
        "annotation aliquot.dev/gpu-model: no GPU of this cluster will do; there are A100-SXM4-80GB, L4"
    ]
    assert warnings(pod) == []
    hint = "for a part of a name write *A100*, *SXM4*"
    part = written(container(compute="30"), notes={"gpu-model": "a100,sxm4,H100"})
    assert warnings(part, models=[A100, L4]) == [
        f"annotation {NAMES.gpu_model}: no GPU of this cluster will do; there are A100-SXM4-80GB, L4; {hint}"
    ]
    for pattern in ("a100*", "NVIDIA-L4", "!A100*"):
        assert warnings(written(container(compute="30"), notes={"gpu-model": pattern}), models=[A100, L4]) == []


def test_a_uuid_and_a_node_that_are_not_there_are_told() -> None:
    """Both may come, so the pod may wait; where nothing is known nothing is said."""
    there = there_in(picture_with(make_node("n1", gpus("n1", 2))))
    asks = container(compute="30")
    assert warnings(written(asks, notes={"gpu-uuid": "GPU-n2-*"}), there=there) == [
        "annotation aliquot.dev/gpu-uuid: no GPU of this cluster will do, so the pod may wait for ever"
    ]
    assert warnings(mutated(written(asks, nodeName="zzz")), there=there) == [
        "there is no node zzz, so the pod may wait for ever"
    ]
    for fine in (written(asks, notes={"gpu-uuid": "!GPU-n1-0"}), mutated(written(asks, nodeName="n1")), written(asks)):
        assert warnings(fine, there=there) == []
    assert warnings(mutated(written(asks, notes={"gpu-uuid": "x"}, nodeName="zzz"))) == []


def test_an_isolation_that_nobody_knows_is_refused_with_those_there_are() -> None:
    """As a placement that nobody knows is: no node that may yet come offers it."""
    (problem,) = problems(written(container(compute="30"), notes={"isolation": "hard"}))
    assert problem == (
        "annotation aliquot.dev/isolation: 'hard' is no mode of isolation; write one of observe, interposer, mps, mig,"
        " or leave it out"
    )
    for mode in MODES:
        assert warnings(written(container(compute="30"), notes={"isolation": mode})) == []


def test_a_long_list_of_models_is_cut() -> None:
    """A warning may have 256 characters."""
    models = [(f"M{number:02}",) for number in range(NAMED + 3)]
    (warning,) = warnings(written(container(compute="30"), notes={"gpu-model": "X"}), models=models)
    assert warning.endswith("M06, M07 and 3 more")


def test_variables_that_are_set_in_vain_are_told() -> None:
    """The slice's own win."""
    pod = written({**container(compute="30"), "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]})
    assert warnings(pod) == ["container main: NVIDIA_VISIBLE_DEVICES is set in vain: what the slice says wins"]


@pytest.mark.parametrize("scheduler", ["volcano", "default-scheduler"])
def test_a_scheduler_that_does_not_ask_us_is_refused(scheduler: str) -> None:
    """Once the gate is lifted it would do with the pod as it likes: bind it without a slice, evict others for it."""
    pod = mutated(written(container(compute="30")))
    foreign = decoded(pod | {"spec": pod["spec"] | {"schedulerName": scheduler}})
    (problem,) = judge_entry(foreign, names=NAMES, settings=AdmissionSettings())
    assert f"{scheduler} is not known to ask Aliquot" in str(problem)
    assert "leave it out, which means aliquot" in str(problem)


def test_a_scheduler_that_an_operator_knows_to_ask_us_is_not_refused() -> None:
    """Another profile with the extender's snippet."""
    pod = mutated(written(container(compute="30")))
    theirs = decoded(pod | {"spec": pod["spec"] | {"schedulerName": "theirs"}})
    known = AdmissionSettings(other_schedulers=("x", "theirs"))
    assert list(judge_entry(theirs, names=NAMES, settings=known)) == []


def test_what_is_said_without_asking_is_told() -> None:
    """Annotations and a group do nothing for a pod without a slice."""
    pod = written(container(), notes={"gpus": "2", "group-size": "2"}, labels={"group": "g", "queue": "q"})
    asks = "does nothing: no container asks for aliquot.dev/compute or aliquot.dev/memory"
    assert warnings(pod) == [
        f"label aliquot.dev/group {asks}",
        f"annotation aliquot.dev/gpus {asks}",
        f"annotation aliquot.dev/group-size {asks}",
    ]


STRANGE = [
    ("labels", "que", "label aliquot.dev/que does nothing: did you mean aliquot.dev/queue?"),
    ("labels", "gpus", "label aliquot.dev/gpus does nothing: write it as annotation"),
    ("labels", "zone", "label aliquot.dev/zone does nothing: no label of that name is read"),
    ("annotations", "gpumodel", "annotation aliquot.dev/gpumodel does nothing: did you mean aliquot.dev/gpu-model?"),
    ("annotations", "queue", "annotation aliquot.dev/queue does nothing: write it as label"),
]


@pytest.mark.parametrize(("section", "key", "told"), STRANGE)
def test_what_nobody_reads_is_told(section: str, key: str, told: str) -> None:
    """Whether the pod asks for a slice or not: most often it is a slip of the pen."""
    for pod in (written(container(compute="30")), written(container())):
        pod["metadata"][section] = {NAMES.of(key): "1"}
        assert warnings(pod) == [told]


def test_what_others_and_aliquot_itself_write_is_not_told_as_strange() -> None:
    """Other domains, whose a pod is, and what the centre counts."""
    pod = written(container(compute="30"), notes={"turn": "1", "room": "{}"}, labels={"user": "ann"})
    pod["metadata"]["annotations"] |= {"example.com/gpus": "1", "x.aliquot.dev/gpus": "1"}
    assert warnings(pod) == []


# --- what may no longer change, and how pods come in -----------------------------------------------------------------

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
