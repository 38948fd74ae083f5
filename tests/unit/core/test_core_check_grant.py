"""Whether a grant is its pod's, and what the pod asked for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.claims import check_grant, claims
from aliquot_core.errors import UserError
from aliquot_core.grant import ContainerGrant, Grant, GrantError, Slice
from aliquot_core.objects import Container, Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_core.request import parse_request
from support.asking import NAMES, app, pod

Part = tuple[str, int, int] | tuple[str, int, int, int]  # GPU, percent, MiB, limit unless equal


def granted(held: Mapping[str, tuple[Part, ...]], *, node: str = "n1", uid: str = "uid-1") -> Grant:
    """A grant of these slices, by container."""

    def one(gpu: str, compute: int, memory: int, limit: int | None = None) -> Slice:
        return Slice(
            gpu=gpu, compute=Percent(compute), limit=Percent(compute if limit is None else limit), memory=MiB(memory)
        )

    containers = {name: ContainerGrant(slices=tuple(one(*part) for part in parts)) for name, parts in held.items()}
    return Grant(node=node, pod=uid, containers=containers)


def bound(
    *apps: Container, inits: tuple[Container, ...] = (), notes: Mapping[str, str] | None = None, node: str = "n1"
) -> Pod:
    """A pod that is bound to node n1."""
    return pod(*apps, inits=inits, notes=notes, node=node)


def gpu(name: str = "main", compute: int | None = 30, memory: int | None = 8, *, sidecar: bool = False) -> Container:
    """A container that asks."""
    return app(name, compute=compute, memory=memory, sidecar=sidecar)


GOOD: dict[str, tuple[Pod, dict[str, tuple[Part, ...]]]] = {
    "as asked": (bound(gpu()), {"main": (("X", 30, 8),)}),
    "memory left out": (bound(gpu(memory=None)), {"main": (("X", 30, 12_345),)}),
    "best effort": (bound(gpu(compute=None)), {"main": (("X", 0, 8, 100),)}),
    "with burst": (bound(gpu(), notes={"compute-limit": "80"}), {"main": (("X", 30, 8, 80),)}),
    "a whole GPU with little memory": (bound(gpu(compute=100)), {"main": (("X", 100, 8),)}),
    "two and a half": (
        bound(gpu(compute=250, memory=1_000)),
        {"main": (("X", 100, 400), ("Y", 100, 400), ("Z", 50, 200))},
    ),
    "two and a half in another order": (
        bound(gpu(compute=250, memory=1_000)),
        {"main": (("Z", 50, 200), ("X", 100, 400), ("Y", 100, 400))},
    ),
    "two and a half, memory left out, cards that differ": (
        bound(gpu(compute=250, memory=None)),
        {"main": (("X", 100, 80), ("Y", 100, 40), ("Z", 50, 20))},
    ),
    "evenly over two": (bound(gpu(compute=61, memory=9), notes={"gpus": "2"}), {"main": (("X", 31, 5), ("Y", 30, 4))}),
    "two containers on one GPU": (
        bound(gpu("a", 50), gpu("b", 50)),
        {"a": (("X", 50, 8),), "b": (("X", 50, 8),)},
    ),
    "two containers apart, one of them whole": (
        bound(gpu("a", 100), gpu("b", None)),
        {"a": (("X", 100, 8),), "b": (("Y", 0, 8, 100),)},
    ),
    "one asks nothing": (bound(gpu("a"), app("b")), {"a": (("X", 30, 8),)}),
    "an init on its app's GPU": (
        bound(gpu("a"), inits=(gpu("i", 100, 16),)),
        {"i": (("X", 100, 16),), "a": (("X", 30, 8),)},
    ),
    "an init on one of its apps' GPUs": (
        bound(gpu("a"), gpu("b", 100), inits=(gpu("i"),)),
        {"i": (("X", 30, 8),), "a": (("X", 30, 8),), "b": (("Y", 100, 8),)},
    ),
    "an init on more GPUs than its app": (
        bound(gpu("a"), inits=(gpu("i", 200, 16),)),
        {"i": (("X", 100, 8), ("Y", 100, 8)), "a": (("X", 30, 8),)},
    ),
    "an init whose apps ask nothing": (bound(app("a"), inits=(gpu("i"),)), {"i": (("X", 30, 8),)}),
    "an init apart from a whole sidecar, apps ask nothing": (
        bound(app("a"), inits=(gpu("s", 100, sidecar=True), gpu("i"))),
        {"s": (("X", 100, 8),), "i": (("Y", 30, 8),)},
    ),
    "a sidecar elsewhere": (
        bound(gpu("a"), inits=(gpu("s", 40, sidecar=True),)),
        {"s": (("Y", 40, 8),), "a": (("X", 30, 8),)},
    ),
    "a whole init before a sidecar": (
        bound(gpu("a"), inits=(gpu("i", 100), gpu("s", 40, sidecar=True))),
        {"i": (("X", 100, 8),), "s": (("X", 40, 8),), "a": (("X", 30, 8),)},
    ),
    "an allowed uuid": (bound(gpu(), notes={"gpu-uuid": "GPU-1*"}), {"main": (("GPU-12", 30, 8),)}),
}


@pytest.mark.parametrize("row", GOOD)
def test_a_grant_of_what_was_asked_is_taken(row: str) -> None:
    """And what was asked is handed on."""
    asking, held = GOOD[row]
    assert check_grant(granted(held), pod=asking, names=NAMES) == parse_request(asking, names=NAMES)


BAD: dict[str, tuple[Pod, dict[str, tuple[Part, ...]], str]] = {
    "less compute": (bound(gpu()), {"main": (("X", 29, 8),)}, "container main: compute 29 where 30 was asked"),
    "more compute": (bound(gpu()), {"main": (("X", 31, 8),)}, "compute 31 where 30 was asked"),
    "less memory": (bound(gpu()), {"main": (("X", 30, 7),)}, "memory 7 MiB where 8 MiB was asked"),
    "more memory": (bound(gpu()), {"main": (("X", 30, 9),)}, "memory 9 MiB where 8 MiB was asked"),
    "burst that was not asked": (bound(gpu()), {"main": (("X", 30, 8, 80),)}, "compute 30(to 80) where 30 was asked"),
    "no burst": (
        bound(gpu(), notes={"compute-limit": "80"}),
        {"main": (("X", 30, 8),)},
        "compute 30 where 30(to 80) was asked",
    ),
    "compute for best effort": (
        bound(gpu(compute=None)),
        {"main": (("X", 10, 8, 100),)},
        "compute 10(to 100) where 0(to 100) was asked",
    ),
    "on too many GPUs": (bound(gpu()), {"main": (("X", 15, 4), ("Y", 15, 4))}, "compute 15+15 where 30 was asked"),
    "on too few GPUs": (
        bound(gpu(compute=60), notes={"gpus": "2"}),
        {"main": (("X", 60, 8),)},
        "compute 60 where 30+30 was asked",
    ),
    "not whole ones first": (
        bound(gpu(compute=150, memory=None)),
        {"main": (("X", 75, 8), ("Y", 75, 8))},
        "compute 75+75 where 100+50 was asked",
    ),
    "memory with the other GPU": (
        bound(gpu(compute=150, memory=300)),
        {"main": (("X", 100, 100), ("Y", 50, 200))},
        "memory 100+200 MiB where 200+100 MiB was asked",
    ),
    "a stranger": (
        bound(gpu(), app("b")),
        {"main": (("X", 30, 8),), "b": (("X", 1, 1),), "c": (("X", 1, 1),)},
        "names containers that ask for nothing: b, c",
    ),
    "one forgotten": (
        bound(gpu("a"), gpu("b"), gpu("c")),
        {"a": (("X", 30, 8),)},
        "forgets containers that ask for a slice: b, c",
    ),
    "whole beside best effort": (
        bound(gpu("a", 100), gpu("b", None)),
        {"a": (("X", 100, 8),), "b": (("X", 0, 8, 100),)},
        "gives GPU X whole to one of 2 containers that hold it at one time",
    ),
    "a whole sidecar beside an init": (
        bound(app("a"), inits=(gpu("s", 100, sidecar=True), gpu("i", None))),
        {"s": (("X", 100, 8),), "i": (("X", 0, 8, 100),)},
        "gives GPU X whole to one of 2 containers",
    ),
    "whole beside whole": (
        bound(gpu("a", 100), gpu("b", 100)),
        {"a": (("X", 100, 8),), "b": (("X", 100, 8),)},
        "gives GPU X whole to one of 2 containers",
    ),
    "more than a GPU among its own": (
        bound(gpu("a", 60), gpu("b", 50)),
        {"a": (("X", 60, 8),), "b": (("X", 50, 8),)},
        "110 % of GPU X at one time",
    ),
    "more than a GPU on the second": (
        bound(gpu("a", 150, 300), gpu("b", 60)),
        {"a": (("X", 100, 200), ("Y", 50, 100)), "b": (("Y", 60, 8),)},
        "110 % of GPU Y at one time",
    ),
    "an init and a sidecar too much": (
        bound(app("a"), inits=(gpu("s", 60, sidecar=True), gpu("i", 50))),
        {"s": (("X", 60, 8),), "i": (("X", 50, 8),)},
        "110 % of GPU X at one time",
    ),
    "an init apart from its app": (
        bound(gpu("a"), inits=(gpu("i"),)),
        {"i": (("Y", 30, 8),), "a": (("X", 30, 8),)},
        "container i: an init container runs on its app containers' GPUs",
    ),
    "an init half apart from its app": (
        bound(gpu("a", 150, 300), inits=(gpu("i", 150, 300),)),
        {"i": (("X", 100, 200), ("Z", 50, 100)), "a": (("X", 100, 200), ("Y", 50, 100))},
        "container i: an init container runs on its app containers' GPUs",
    ),
    "a forbidden uuid": (
        bound(gpu(), notes={"gpu-uuid": "!GPU-1*"}),
        {"main": (("GPU-12", 30, 8),)},
        "GPU GPU-12 is not one that the pod allows",
    ),
}


@pytest.mark.parametrize("row", BAD)
def test_a_grant_of_anything_else_is_refused(row: str) -> None:
    """With both sides of the contradiction in the sentence."""
    asking, held, reason = BAD[row]
    with pytest.raises(GrantError) as caught:
        check_grant(granted(held), pod=asking, names=NAMES)
    assert reason in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("node", "uid", "at", "reason"),
    [
        ("n1", "uid-2", "n1", "belongs to another pod (uid uid-2), this one is uid-1"),
        ("n2", "uid-1", "n1", "is for node n2, the pod is bound to n1"),
        ("n1", "uid-1", "", "is for node n1, the pod is bound to none"),
    ],
)
def test_a_grant_of_another_pod_or_node_is_refused(node: str, uid: str, at: str, reason: str) -> None:
    """A name that is used again must not inherit a slice."""
    with pytest.raises(GrantError) as caught:
        check_grant(granted({"main": (("X", 30, 8),)}, node=node, uid=uid), pod=bound(gpu(), node=at), names=NAMES)
    assert reason in str(caught.value)


def test_a_pod_whose_request_is_wrong_has_no_good_grant() -> None:
    """What its author must mend is said, not what the scheduler did."""
    with pytest.raises(UserError, match="write 8192 for 8Gi"):
        check_grant(granted({"main": (("X", 30, 8),)}), pod=bound(app(compute=30, memory="8Gi")), names=NAMES)


@st.composite
def placed(draw: st.DrawFn) -> tuple[Pod, Grant]:
    """A random pod and a grant of exactly its shares, each container on GPUs of its own."""
    containers = []
    for number in range(draw(st.integers(1, 3))):
        compute = draw(st.none() | st.integers(1, 350))
        memory = draw(st.integers(1, 9_000) if compute is None else st.none() | st.integers(1, 9_000))
        containers.append(app(f"c{number}", compute=compute, memory=memory))
    asking = bound(*containers)
    held: dict[str, tuple[Part, ...]] = {
        asked.name: tuple(
            (f"{asked.name}-{n}", share.compute.value, share.memory.value if share.memory else 77, share.limit.value)
            for n, share in enumerate(asked.shares)
        )
        for asked in parse_request(asking, names=NAMES).containers
    }
    return asking, granted(held)


@given(placed())
def test_a_grant_made_from_the_shares_is_always_taken(case: tuple[Pod, Grant]) -> None:
    """What the scheduler divides by the same rule is what the agent expects."""
    asking, grant = case
    assert len(check_grant(grant, pod=asking, names=NAMES).containers) == len(grant.containers)
    assert {part.gpu for _, part in grant.slices()} == set(claims(asking, grant))


@given(placed(), st.data())
def test_a_grant_with_one_number_changed_is_never_taken(case: tuple[Pod, Grant], data: st.DataObject) -> None:
    """Not by one percent, not by one MiB where memory was asked."""
    asking, grant = case
    name, part = data.draw(st.sampled_from(list(grant.slices())))
    asked = parse_request(asking, names=NAMES).of(name)
    assert asked is not None
    fields = ["compute", "limit"] + (["memory"] if asked.memory else [])
    field, by = data.draw(st.sampled_from(fields)), data.draw(st.sampled_from([-1, 1]))
    numbers = {key: getattr(part, key).value for key in ("compute", "memory", "limit")}
    numbers[field] += by
    slices = [one if one is not part else None for one in grant.containers[name].slices]
    changed: list[Part] = [
        (part.gpu, numbers["compute"], numbers["memory"], numbers["limit"])
        if one is None
        else (one.gpu, one.compute.value, one.memory.value, one.limit.value)
        for one in slices
    ]
    containers = grant.containers | granted({name: tuple(changed)}).containers
    with pytest.raises(GrantError):
        check_grant(Grant(node=grant.node, pod=grant.pod, containers=containers), pod=asking, names=NAMES)
