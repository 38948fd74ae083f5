"""The grant on the wire: what is written is read back, and whatever else is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.grant import (
    LARGEST_TEXT,
    MOST_CONTAINERS,
    MOST_SLICES,
    ContainerGrant,
    Grant,
    GrantError,
    Slice,
    decode_grant,
    encode_grant,
    readable_grant,
)
from aliquot_core.quantities import LARGEST, MiB, Percent

UUID = "GPU-8f2a0c6e-3b1d-4c55-9a7e-0123456789ab"


def part(gpu: str = "GPU-a", compute: int = 30, memory: int = 8_000, limit: int | None = None) -> Slice:
    """A slice, without burst unless told."""
    return Slice(
        gpu=gpu, compute=Percent(compute), limit=Percent(compute if limit is None else limit), memory=MiB(memory)
    )


@st.composite
def container_grants(draw: st.DrawFn) -> ContainerGrant:
    """Slices of distinct GPUs."""
    gpus = draw(
        st.lists(
            st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,79}", fullmatch=True), min_size=1, max_size=4, unique=True
        )
    )
    slices = []
    for gpu in gpus:
        limit = draw(st.integers(1, 100))
        slices.append(part(gpu, draw(st.integers(0, limit)), draw(st.integers(1, LARGEST)), limit))
    return ContainerGrant(slices=tuple(slices), isolation=draw(st.sampled_from(["", "mps", "mig", "observe"])))


CONTAINER_NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
GRANTS = st.builds(
    Grant,
    node=st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True),
    pod=st.uuids().map(str),
    containers=st.dictionaries(CONTAINER_NAMES, container_grants(), min_size=1, max_size=4),
)


@given(GRANTS)
def test_a_grant_comes_back_as_it_was_written(grant: Grant) -> None:
    """And its text is the same each time, on one line of plain characters."""
    text = encode_grant(grant)
    assert decode_grant(text) == readable_grant(text) == grant
    assert encode_grant(decode_grant(text)) == text
    assert text.isascii()
    assert text.isprintable()


def test_the_text_is_what_the_contract_knows() -> None:
    """The format is read by agents of other versions: a change of it needs a new version."""
    grant = Grant(
        node="n1",
        pod="u1",
        containers={
            "main": ContainerGrant(slices=(part(), part("GPU-b", 0, 5, 100)), isolation="mps"),
            "side": ContainerGrant(slices=(part("GPU-b", 20, 5, 20),)),
        },
    )
    assert encode_grant(grant) == (
        '{"v":1,"node":"n1","pod":"u1","containers":{'
        '"main":{"slices":[{"gpu":"GPU-a","compute":30,"memory":8000},'
        '{"gpu":"GPU-b","compute":0,"memory":5,"limit":100}],"isolation":"mps"},'
        '"side":{"slices":[{"gpu":"GPU-b","compute":20,"memory":5}]}}}'
    )
    assert list(grant.slices()) == [
        ("main", part()),
        ("main", part("GPU-b", 0, 5, 100)),
        ("side", part("GPU-b", 20, 5)),
    ]


def test_a_container_holds_the_sum_of_its_slices() -> None:
    """Percent and MiB each by itself; a slice of 100 closes its GPU."""
    held = ContainerGrant(slices=(part("GPU-a", 100, 400), part("GPU-b", 50, 200)))
    assert (held.compute, held.memory) == (Percent(150), MiB(600))
    assert [one.whole for one in held.slices] == [True, False]
    assert not part(compute=99, limit=100).whole


def text_of(**changes: Any) -> str:
    """A good grant with some of its entries changed; `...` takes one away."""
    entries: dict[str, Any] = {"v": 1, "node": "n1", "pod": "u1", "containers": {"main": {"slices": [one()]}}}
    return json.dumps({key: value for key, value in (entries | changes).items() if value is not ...})


def one(**changes: Any) -> dict[str, Any]:
    """A good slice with some of its entries changed."""
    entries: dict[str, Any] = {"gpu": "GPU-a", "compute": 30, "memory": 8_000}
    return {key: value for key, value in (entries | changes).items() if value is not ...}


def of_slice(**changes: Any) -> str:
    """A grant of one changed slice."""
    return text_of(containers={"main": {"slices": [one(**changes)]}})


def of_container(name: str = "main", **changes: Any) -> str:
    """A grant of one changed container."""
    return text_of(containers={name: {"slices": [one()]} | changes})


REFUSED = {
    "nothing": ("", "not readable"),
    "not JSON": ("grant", "not readable"),
    "half of it": (text_of()[:-2], "not readable"),
    "two of it": (text_of() * 2, "not readable"),
    "not UTF-8": (text_of(node="n1").replace("n1", "\ud800"), "not readable"),
    "null": ("null", "not readable"),
    "a list": ("[]", "not readable"),
    "a number": ("1", "not readable"),
    "no version": (text_of(v=...), "not readable"),
    "version 0": (text_of(v=0), "version 0 is not understood, only 1"),
    "version 2": ('{"v":2,"whatever":[]}', "a later version of Aliquot wrote it: its format is 2, and 1 is all"),
    "a version as text": (text_of(v="1"), "not readable"),
    "a version as truth": (text_of(v=True), "not readable"),
    "a version of many digits": ('{"v":' + "9" * 5_000 + "}", "not readable"),
    "an unknown entry": (text_of(extra=1), "not readable"),
    "an unknown entry of a container": (of_container(extra=1), "not readable"),
    "an unknown entry of a slice": (of_slice(extra=1), "not readable"),
    "no node": (text_of(node=...), "not readable"),
    "an empty node": (text_of(node=""), "'' is no name of a node"),
    "a node of two lines": (text_of(node="n1\nn2"), "is no name of a node"),
    "a node in capitals": (text_of(node="N1"), "is no name of a node"),
    "an endless node": (text_of(node="n" * 254), "is no name of a node"),
    "no pod": (text_of(pod=...), "not readable"),
    "an empty pod": (text_of(pod=""), "'' is no UID of a pod"),
    "a pod with blanks": (text_of(pod="u 1"), "is no UID of a pod"),
    "an endless pod": (text_of(pod="u" * 129), "is no UID of a pod"),
    "no containers": (text_of(containers=...), "not readable"),
    "empty containers": (text_of(containers={}), "0 containers are not 1 to 128"),
    "containers as a list": (text_of(containers=[]), "not readable"),
    "too many containers": (
        text_of(containers={f"c{number}": {"slices": [one()]} for number in range(MOST_CONTAINERS + 1)}),
        "129 containers are not 1 to 128",
    ),
    "a container without name": (of_container(""), "is no name of a container"),
    "a container in capitals": (of_container("Main"), "is no name of a container"),
    "a container of two lines": (of_container("main\n"), "is no name of a container"),
    "an endless container": (of_container("m" * 64), "is no name of a container"),
    "no slices": (of_container(slices=[]), "0 slices are not 1 to 64"),
    "slices as an object": (of_container(slices={}), "not readable"),
    "too many slices": (
        of_container(slices=[one(gpu=f"GPU-{number}") for number in range(MOST_SLICES + 1)]),
        "65 slices are not 1 to 64",
    ),
    "a GPU twice": (of_container(slices=[one(), one(compute=1)]), "names a GPU twice"),
    "an isolation of two words": (of_container(isolation="mps mig"), "is no mode of isolation"),
    "an isolation that is no text": (of_container(isolation=1), "not readable"),
    "no GPU": (of_slice(gpu=...), "not readable"),
    "an empty GPU": (of_slice(gpu=""), "is no GPU's uuid"),
    "a GPU that leads elsewhere": (of_slice(gpu="../GPU-a"), "is no GPU's uuid"),
    "a GPU with a comma": (of_slice(gpu="GPU-a,GPU-b"), "is no GPU's uuid"),
    "a GPU of two lines": (of_slice(gpu="GPU-a\n"), "is no GPU's uuid"),
    "an endless GPU": (of_slice(gpu="G" * 81), "is no GPU's uuid"),
    "negative compute with a limit": (of_slice(compute=-1, limit=30), "compute -1"),
    "negative compute": (of_slice(compute=-1), "compute -1"),
    "more than a GPU": (of_slice(compute=101), "compute 101"),
    "no compute": (of_slice(compute=...), "not readable"),
    "compute as text": (of_slice(compute="30"), "not readable"),
    "compute as truth": (of_slice(compute=True), "not readable"),
    "compute with a point": (of_slice(compute=30.0), "not readable"),
    "compute with an exponent": (of_slice().replace("30", "3e1"), "not readable"),
    "compute NaN": (of_slice(compute=float("nan")), "not readable"),
    "compute of many digits": (of_slice().replace("30", "9" * 5_000), "not readable"),
    "a limit below": (of_slice(limit=29), "compute 30 with limit 29"),
    "a limit above a GPU": (of_slice(limit=101), "compute 30 with limit 101"),
    "a negative limit": (of_slice(compute=0, limit=-1), "compute 0 with limit -1"),
    "nothing at all of the compute": (of_slice(compute=0), "compute 0 with limit 0"),
    "no memory": (of_slice(memory=...), "not readable"),
    "memory 0": (of_slice(memory=0), "memory 0 is less than 1 MiB"),
    "negative memory": (of_slice(memory=-8_000), "memory -8000 is less than 1 MiB"),
    "more memory than there is": (of_slice(memory=LARGEST + 1), "not readable"),
    "memory null": (of_slice(memory=None), "not readable"),
    "the pod twice": (text_of().replace('"pod"', '"pod": "u0", "pod"'), "says something twice"),
    "the version twice": (text_of().replace('"v"', '"v": 1, "v"'), "says something twice"),
    "a container twice": (
        text_of(containers={"main": {"slices": [one()]}, "mein": {"slices": [one()]}}).replace("mein", "main"),
        "says something twice",
    ),
    "the compute twice": (of_slice().replace('"compute"', '"compute": 30, "compute"'), "says something twice"),
    "the compute twice in other letters": (
        of_slice().replace('"compute"', '"comput\\u0065": 90, "compute"'),
        "says something twice",
    ),
    "deep lists": ("[" * 60_000, "not readable"),
    "deep objects": ('{"v":' * 12_000, "not readable"),
    "deep lists beside the version": ('{"v":1,"x":' + "[" * 30_000 + "]" * 30_000 + "}", "not readable"),
    "too long": (text_of() + " " * LARGEST_TEXT, "more than 65536"),
}


@pytest.mark.parametrize("row", REFUSED)
def test_what_is_not_exactly_a_grant_is_refused(row: str) -> None:
    """With a reason that fits into an Event, and a remedy for whoever runs the cluster."""
    text, reason = REFUSED[row]
    with pytest.raises(GrantError) as caught:
        decode_grant(text)
    assert reason in caught.value.what
    assert caught.value.where.startswith("grant")
    assert caught.value.remedy
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("text", [None, "", "{", '{"v":1}', '{"v":99}'])
def test_whoever_only_shows_it_takes_none_where_it_can_not_be_read(text: str | None) -> None:
    """Not there, cut off, or of a version to come."""
    assert readable_grant(text) is None


def test_the_rows_above_are_wrong_in_one_thing_only() -> None:
    """What they change was good before."""
    assert decode_grant(text_of()) == decode_grant(of_slice()) == decode_grant(of_container())
    assert decode_grant(text_of()).containers == {"main": ContainerGrant(slices=(part(),))}


EDGES = {
    "the longest node": text_of(node="n" * 253),
    "the longest pod": text_of(pod="u" * 128),
    "the longest container": of_container("m" * 63),
    "the longest GPU": of_slice(gpu="G" * 80),
    "a MIG device": of_slice(gpu="MIG-GPU-8f2a0c6e/7/0"),
    "a whole GPU": of_slice(compute=100),
    "best effort": of_slice(compute=0, limit=1),
    "the least memory": of_slice(memory=1),
    "the most memory": of_slice(memory=LARGEST),
    "a limit of null": of_slice(limit=None),
    "the most slices": of_container(slices=[one(gpu=f"GPU-{number}") for number in range(MOST_SLICES)]),
    "the most containers": text_of(containers={f"c{n}": {"slices": [one()]} for n in range(MOST_CONTAINERS)}),
    "the longest text": text_of() + " " * (LARGEST_TEXT - len(text_of())),
}


@pytest.mark.parametrize("row", EDGES)
def test_what_just_fits_is_read(row: str) -> None:
    """Each limit itself is allowed."""
    assert decode_grant(EDGES[row]).pod


def test_the_largest_pod_has_a_grant_that_fits() -> None:
    """64 containers of 8 GPUs with real uuids, burst and isolation."""
    slices = tuple(part(f"{UUID[:-1]}{number}", 10, 100_000, 90) for number in range(8))
    grant = Grant(
        node="n" * 60,
        pod="8f2a0c6e-3b1d-4c55-9a7e-0123456789ab",
        containers={
            f"container-{number}": ContainerGrant(slices=slices, isolation="interposer") for number in range(64)
        },
    )
    assert len(encode_grant(grant)) < LARGEST_TEXT
    assert decode_grant(encode_grant(grant)) == grant


@given(GRANTS, st.data())
def test_a_damaged_grant_is_refused_or_is_still_a_grant(grant: Grant, data: st.DataObject) -> None:
    """Cut, doubled or changed anywhere: nothing but a GrantError comes of it, and what passes is within bounds."""
    text = encode_grant(grant)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    damaged = text[:start] + data.draw(st.text(max_size=5)) + text[end:]
    try:
        read = decode_grant(damaged)
    except GrantError:
        return
    for _, one_part in read.slices():
        assert 0 <= one_part.compute.value <= one_part.limit.value <= 100
        assert 1 <= one_part.memory.value <= LARGEST
