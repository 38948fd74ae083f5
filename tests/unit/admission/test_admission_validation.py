"""What is refused is refused so that it can be mended, all of it at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.modes import MODES
from aliquot_core.quantities import NO_COMPUTE, MiB, Percent
from aliquot_core.request import ContainerRequest, Kind
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.validation import judge_entry
from aliquot_scheduler.fit.demand import least_memory
from support.admitting import NAMES, Json, container, decoded, mutated, written
from support.judging import problems, warnings

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


def test_an_isolation_that_nobody_knows_is_refused_with_those_there_are() -> None:
    """As a placement that nobody knows is: no node that may yet come offers it."""
    (problem,) = problems(written(container(compute="30"), notes={"isolation": "hard"}))
    assert problem == (
        "annotation aliquot.dev/isolation: 'hard' is no mode of isolation; write one of observe, interposer, mps, mig,"
        " or leave it out"
    )
    for mode in MODES:
        assert warnings(written(container(compute="30"), notes={"isolation": mode})) == []


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
