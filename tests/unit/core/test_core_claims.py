"""What a pod takes of each GPU over its life, against a simulation of that life."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.claims import NOTHING, Claim, claims, overdrawn
from aliquot_core.grant import ContainerGrant, Grant, Slice
from aliquot_core.objects import Container, Pod
from aliquot_core.quantities import MiB, Percent
from support.asking import app, pod

Held = dict[str, tuple[int, int]]  # GPU → percent, MiB


def grant_of(held: dict[str, Held]) -> Grant:
    """A grant of these slices, by container."""
    return Grant(
        node="n1",
        pod="uid-1",
        containers={
            name: ContainerGrant(
                slices=tuple(
                    Slice(gpu=gpu, compute=Percent(compute), limit=Percent(max(compute, 1)), memory=MiB(memory))
                    for gpu, (compute, memory) in parts.items()
                )
            )
            for name, parts in held.items()
        },
    )


def numbers(found: dict[str, Claim]) -> dict[str, tuple[int, int, bool]]:
    """Claims in plain numbers: percent, MiB, closed."""
    return {gpu: (claim.compute.value, claim.memory.value, claim.closes) for gpu, claim in found.items()}


# init containers in order (a sidecar's name begins with s), app containers, what is claimed
ROWS: dict[str, tuple[dict[str, Held], dict[str, Held], dict[str, tuple[int, int, bool]]]] = {
    "one app": ({}, {"a": {"X": (30, 8)}}, {"X": (30, 8, False)}),
    "two apps on one GPU": ({}, {"a": {"X": (30, 8)}, "b": {"X": (20, 4)}}, {"X": (50, 12, False)}),
    "two apps on two": (
        {},
        {"a": {"X": (30, 8)}, "b": {"Y": (20, 4)}},
        {"X": (30, 8, False), "Y": (20, 4, False)},
    ),
    "a smaller init": ({"i": {"X": (20, 4)}}, {"a": {"X": (30, 8)}}, {"X": (30, 8, False)}),
    "a larger init": ({"i": {"X": (40, 9)}}, {"a": {"X": (30, 8)}}, {"X": (40, 9, False)}),
    "an init of more compute and less memory": (
        {"i": {"X": (40, 4)}},
        {"a": {"X": (30, 8)}},
        {"X": (40, 8, False)},
    ),
    "two inits are never there together": (
        {"i": {"X": (40, 4)}, "j": {"X": (30, 9)}},
        {"a": {"X": (10, 1)}},
        {"X": (40, 9, False)},
    ),
    "an init alone": ({"i": {"X": (40, 4)}}, {"a": {}}, {"X": (40, 4, False)}),
    "a sidecar beside the apps": (
        {"s": {"X": (10, 1)}},
        {"a": {"X": (30, 8)}},
        {"X": (40, 9, False)},
    ),
    "an init after a sidecar": (
        {"s": {"X": (10, 1)}, "i": {"X": (40, 4)}},
        {"a": {"X": (30, 8)}},
        {"X": (50, 9, False)},
    ),
    "an init before a sidecar": (
        {"i": {"X": (40, 4)}, "s": {"X": (10, 1)}},
        {"a": {"X": (20, 2)}},
        {"X": (40, 4, False)},
    ),
    "an init between sidecars": (
        {"s": {"X": (10, 1)}, "i": {"X": (40, 4)}, "s2": {"X": (20, 5)}},
        {"a": {"X": (15, 2)}},
        {"X": (50, 8, False)},
    ),
    "two and a half": (
        {},
        {"a": {"X": (100, 40), "Y": (100, 40), "Z": (50, 20)}},
        {"X": (100, 40, True), "Y": (100, 40, True), "Z": (50, 20, False)},
    ),
    "closed by an init": ({"i": {"X": (100, 4)}}, {"a": {"X": (30, 8)}}, {"X": (100, 8, True)}),
    "two halves close nothing": ({}, {"a": {"X": (50, 4)}, "b": {"X": (50, 8)}}, {"X": (100, 12, False)}),
    "best effort": ({}, {"a": {"X": (0, 8)}}, {"X": (0, 8, False)}),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_claim_is_the_most_that_is_held_at_one_time(row: str) -> None:
    """Init containers one after the other, each with the sidecars before it; at the end all that stays."""
    inits, apps, wanted = ROWS[row]
    asking = pod(
        *(app(name) for name in apps),
        inits=tuple(app(name, sidecar=name.startswith("s")) for name in inits),
    )
    granted = grant_of({name: held for name, held in (inits | apps).items() if held})
    assert numbers(claims(asking, granted)) == wanted


def lived(asking: Pod, granted: Grant) -> dict[str, tuple[int, int, bool]]:
    """Live the pod's life step by step and note the most that was ever held: the oracle, on purpose in another way."""
    running: list[str] = []
    peaks: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    closed: set[str] = set()

    def look() -> None:
        now: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for name in running:
            for part in granted.containers[name].slices if name in granted.containers else ():
                now[part.gpu][0] += part.compute.value
                now[part.gpu][1] += part.memory.value
                if part.compute.value == 100:
                    closed.add(part.gpu)
        for gpu, (compute, memory) in now.items():
            peaks[gpu] = [max(peaks[gpu][0], compute), max(peaks[gpu][1], memory)]

    for container in asking.spec.init_containers:
        running.append(container.name)
        look()
        if container.restart_policy != "Always":
            running.remove(container.name)
            look()
    for container in asking.spec.containers:
        running.append(container.name)
        look()
    return {gpu: (compute, memory, gpu in closed) for gpu, (compute, memory) in peaks.items()}


@st.composite
def lives(draw: st.DrawFn) -> tuple[Pod, Grant]:
    """A pod of random containers with random slices on up to three GPUs."""
    held: dict[str, Held] = {}

    def containers(count: int, prefix: str) -> list[Container]:
        made = []
        for number in range(count):
            name = f"{prefix}{number}"
            parts = draw(
                st.dictionaries(
                    st.sampled_from("XYZ"),
                    st.tuples(st.sampled_from([0, 1, 30, 50, 99, 100]), st.integers(1, 50)),
                    max_size=3,
                )
            )
            if parts:
                held[name] = parts
            made.append(app(name, sidecar=prefix == "i" and draw(st.booleans())))
        return made

    inits = containers(draw(st.integers(0, 5)), "i")
    apps = containers(draw(st.integers(1, 4)), "a")
    return pod(*apps, inits=tuple(inits)), grant_of(held)


@given(lives())
def test_claims_are_what_a_life_shows(life: tuple[Pod, Grant]) -> None:
    """The formula and the simulated life agree on every GPU, compute, memory and closing."""
    assert numbers(claims(*life)) == lived(*life)


@given(lives(), st.sampled_from("XYZ"))
def test_a_claim_never_exceeds_the_sum_nor_falls_below_any_container(life: tuple[Pod, Grant], gpu: str) -> None:
    """Bounds that hold whatever the order of containers."""
    asking, granted = life
    parts = [part for _, part in granted.slices() if part.gpu == gpu]
    claim = claims(asking, granted).get(gpu, NOTHING)
    assert max((part.compute.value for part in parts), default=0) <= claim.compute.value
    assert claim.compute.value <= sum(part.compute.value for part in parts)
    assert max((part.memory.value for part in parts), default=0) <= claim.memory.value
    assert claim.memory.value <= sum(part.memory.value for part in parts)
    assert claim.closes == any(part.compute.value == 100 for part in parts)


def claim(compute: int, memory: int, *, closes: bool = False) -> Claim:
    """A claim in plain numbers."""
    return Claim(compute=Percent(compute), memory=MiB(memory), closes=closes)


@pytest.mark.parametrize(
    ("total", "holders", "why"),
    [
        (claim(100, 80), 2, None),
        (claim(0, 80), 32, None),
        (claim(100, 80, closes=True), 1, None),
        (claim(0, 0), 0, None),
        (claim(101, 80), 2, "101 % of 100 % compute"),
        (claim(100, 81), 2, "81 MiB of 80 MiB memory"),
        (claim(100, 81, closes=True), 1, "81 MiB of 80 MiB memory"),
        (claim(101, 81), 1, "101 % of 100 % compute"),
        (claim(100, 80, closes=True), 2, "granted whole to one of 2 pods"),
        (claim(100, 1, closes=True), 3, "granted whole to one of 3 pods"),
    ],
)
def test_a_gpu_is_overdrawn_by_compute_by_memory_or_by_company(total: Claim, holders: int, why: str | None) -> None:
    """Exactly full is not too full; whole to one pod bears no other, not even one that takes no compute."""
    assert overdrawn(total, memory=MiB(80), holders=holders) == why
