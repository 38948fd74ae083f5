"""Limits, annotations and labels in, one checked request out."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.errors import UserError
from aliquot_core.names import Names
from aliquot_core.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from aliquot_core.patterns import Patterns
from aliquot_core.quantities import MiB, Percent
from aliquot_core.request import (
    ContainerRequest,
    Kind,
    PodRequest,
    Quality,
    declines,
    kinds,
    parse_request,
)
from aliquot_core.request_notes import Placement
from aliquot_core.request_rules import RequestError
from support.asking import NAMES, app, pod

G, B, E = Quality.GUARANTEED, Quality.BURSTABLE, Quality.BEST_EFFORT

# container, annotations → compute, limit, memory, gpus, class, per GPU (compute, memory)
READ = {
    "compute and memory": (app(compute="30", memory="8k"), {}, 30, 30, 8_000, None, G, [(30, 8_000)]),
    "memory left out": (app(compute="30"), {}, 30, 30, None, None, G, [(30, None)]),
    "compute left out": (app(memory="8k"), {}, 0, 100, 8_000, None, E, [(0, 8_000)]),
    "best effort as the webhook leaves it": (
        app(memory="8k", best_effort="1"),
        {},
        *(0, 100, 8_000, None, E, [(0, 8_000)]),
    ),
    "best effort that says how far": (app(memory=9), {"compute-limit": "40"}, 0, 40, 9, None, E, [(0, 9)]),
    "may burst": (app(compute=30, memory=9), {"compute-limit": "80"}, 30, 80, 9, None, B, [(30, 9)]),
    "may burst to a whole GPU": (app(compute=30, memory=9), {"compute-limit": "100"}, 30, 100, 9, None, B, [(30, 9)]),
    "a limit that is the request": (app(compute=30, memory=9), {"compute-limit": "30"}, 30, 30, 9, None, G, [(30, 9)]),
    "a whole GPU": (app(compute=100, memory=8_000), {}, 100, 100, 8_000, None, G, [(100, 8_000)]),
    "a whole GPU and all its memory": (app(compute=100), {}, 100, 100, None, None, G, [(100, None)]),
    "two and a half": (
        app(compute=250, memory=1_000),
        {},
        *(250, 250, 1_000, None, G, [(100, 400), (100, 400), (50, 200)]),
    ),
    "two and a half, may burst to three": (
        app(compute=250, memory=1_000),
        {"compute-limit": "300"},
        *(250, 300, 1_000, None, B, [(100, 400), (100, 400), (50, 200)]),
    ),
    "evenly over two": (app(compute=60, memory=9), {"gpus": "2"}, 60, 60, 9, 2, G, [(30, 5), (30, 4)]),
    "evenly over two, may burst on both": (
        app(compute=60, memory=9),
        {"gpus": "2", "compute-limit": "200"},
        *(60, 200, 9, 2, B, [(30, 5), (30, 4)]),
    ),
    "all of two": (app(compute=200, memory=9), {"gpus": "2"}, 200, 200, 9, 2, G, [(100, 5), (100, 4)]),
    "evenly over as many as there may be": (app(compute=64), {"gpus": "64"}, 64, 64, None, 64, G, [(1, None)] * 64),
    "as many GPUs as a request may name": (app(compute=6_400), {}, 6_400, 6_400, None, None, G, [(100, None)] * 64),
    "the same request beside the limit": (
        app(compute="30", memory="8k", requests={"compute": 30, "memory": "8000"}),
        {},
        *(30, 30, 8_000, None, G, [(30, 8_000)]),
    ),
}


@pytest.mark.parametrize("row", READ)
def test_a_container_asks_what_its_limits_and_annotations_say(row: str) -> None:
    """Each way to ask that the contract knows."""
    container, notes, compute, limit, memory, gpus, quality, shares = READ[row]
    (asked,) = parse_request(pod(container, notes=notes), names=NAMES).containers
    assert asked == ContainerRequest(
        name="main",
        kind=Kind.APP,
        compute=Percent(compute),
        limit=Percent(limit),
        memory=None if memory is None else MiB(memory),
        gpus=gpus,
    )
    assert asked.quality is quality
    assert [(s.compute.value, s.memory.value if s.memory else None) for s in asked.shares] == shares


def test_kinds_come_in_the_order_in_which_containers_start() -> None:
    """Init containers and sidecars as they are written, then the app containers."""
    asking = pod(app("web"), app("log"), inits=(app("prepare"), app("proxy", sidecar=True), app("migrate")))
    assert [(kind, container.name) for kind, container in kinds(asking)] == [
        (Kind.INIT, "prepare"),
        (Kind.SIDECAR, "proxy"),
        (Kind.INIT, "migrate"),
        (Kind.APP, "web"),
        (Kind.APP, "log"),
    ]


def test_an_init_container_with_another_restart_policy_is_no_sidecar() -> None:
    """Kubernetes lets init containers have one of their own; only `Always` keeps them running beside the others."""
    once = msgspec.structs.replace(app("prepare"), restart_policy="Never")
    assert [kind for kind, _ in kinds(pod(app(), inits=(once,)))] == [Kind.INIT, Kind.APP]


def test_only_containers_that_ask_are_in_the_request() -> None:
    """Each with its own numbers, found by its name; the others hold nothing."""
    asked = parse_request(
        pod(app("web", compute=30, memory=9), app("log"), inits=(app("prepare", memory=4),)), names=NAMES
    )
    assert [(c.name, c.kind) for c in asked.containers] == [("prepare", Kind.INIT), ("web", Kind.APP)]
    web, log = asked.of("web"), asked.of("log")
    assert web is not None
    assert (web.compute, web.memory) == (Percent(30), MiB(9))
    assert log is None


def test_gpus_and_limit_hold_for_every_container_that_has_compute() -> None:
    """A best-effort container beside them lies on one GPU, and may not use more of it than the limit says."""
    asked = parse_request(
        pod(
            app("a", compute=60, memory=10),
            app("b", compute=20, memory=3),
            app("c", memory=5),
            notes={"gpus": "2", "compute-limit": "80"},
        ),
        names=NAMES,
    )
    assert [(c.name, c.gpus, c.limit.value, len(c.shares)) for c in asked.containers] == [
        ("a", 2, 80, 2),
        ("b", 2, 80, 2),
        ("c", None, 80, 1),
    ]


def test_a_pod_says_where_it_wants_to_be() -> None:
    """Every annotation and label that is about the pod as a whole."""
    asked = parse_request(
        pod(
            app(compute=30),
            notes={
                "gpu-model": "A100*, !A100-PCIE*",
                "gpu-uuid": "!GPU-7",
                "placement": "spread",
                "preemptible": "false",
                "isolation": "mig",
                "group-size": "4",
            },
            labels={"queue": "research.vision", "group": "train"},
        ),
        names=NAMES,
    )
    assert asked.models == Patterns(allowed=("a100*",), forbidden=("a100-pcie*",))
    assert asked.uuids == Patterns(forbidden=("gpu-7",))
    assert asked.placement is Placement.SPREAD
    assert (asked.preemptible, asked.isolation, asked.queue) == (False, "mig", "research.vision")
    assert asked.group is not None
    assert (asked.group.name, asked.group.size) == ("train", 4)


def test_a_pod_that_says_nothing_may_be_anywhere_and_be_evicted() -> None:
    """The defaults of the contract."""
    asked = parse_request(pod(app(compute=30)), names=NAMES)
    assert msgspec.structs.replace(asked, containers=()) == PodRequest()
    assert (asked.preemptible, asked.placement, asked.queue, asked.group) == (True, Placement.BEST, "", None)


@pytest.mark.parametrize("asking", [pod(app()), pod(app(), notes={"gpus": "2"}), pod(), pod(app(), inits=(app("i"),))])
def test_a_pod_that_asks_for_nothing_does_not_use_aliquot(asking: Pod) -> None:
    """Other resources are none of our business."""
    assert parse_request(asking, names=NAMES).containers == ()


def test_a_pod_labelled_none_is_out_whatever_its_containers_say() -> None:
    """A LimitRange puts its defaults on every container, so that the label must win, even over what can't be read."""
    out = pod(app(compute=30), app("b", memory="8Gi"), notes={"gpus": "x"}, labels={"use": "none"})
    assert declines(out, names=NAMES)
    assert parse_request(out, names=NAMES) == PodRequest()
    assert not declines(pod(app(compute=30)), names=NAMES)


def test_another_domain_has_other_names() -> None:
    """What stands under the old domain then means nothing."""
    other = Names(domain="gpu.example.org")
    asking = pod(app(compute=30, names=other), notes={"placement": "pack"}, names=other)
    assert parse_request(asking, names=other).placement is Placement.PACK
    assert parse_request(asking, names=NAMES) == PodRequest()
    with pytest.raises(RequestError, match=r"gpu\.example\.org/compute-limit"):
        parse_request(pod(app(compute=30, names=other), notes={"compute-limit": "9"}, names=other), names=other)


WORDS = st.text(max_size=8) | st.sampled_from(["", "0", "1", "2", "30", "8k", "8Gi", "250", "none", "true", "a,!b"])
SHORTS = ("gpus", "gpu-model", "gpu-uuid", "placement", "compute-limit", "preemptible", "isolation")


@given(
    limits=st.dictionaries(st.sampled_from([NAMES.compute, NAMES.memory, NAMES.best_effort, "cpu"]), WORDS),
    requests=st.dictionaries(st.sampled_from([NAMES.compute, NAMES.memory, NAMES.best_effort]), WORDS, max_size=1),
    notes=st.dictionaries(st.sampled_from([NAMES.of(short) for short in SHORTS]), WORDS, max_size=3),
)
def test_whatever_is_written_comes_out_as_a_request_or_as_advice(
    limits: dict[str, str | int | float], requests: dict[str, str | int | float], notes: dict[str, str]
) -> None:
    """No input raises anything but a UserError with a remedy, and what passes can be divided over GPUs."""
    container = Container(name="main", resources=ResourceRequirements(limits=limits, requests=requests))
    asking = Pod(metadata=ObjectMeta(annotations=notes), spec=PodSpec(containers=[container]))
    try:
        asked = parse_request(asking, names=NAMES)
    except UserError as error:
        assert error.where  # noqa: PT017 - either of the two ends is right
        assert error.remedy  # noqa: PT017 - the same
    else:
        for one in asked.containers:
            assert one.limit.value >= 1
            assert sum(share.compute.value for share in one.shares) == one.compute.value
