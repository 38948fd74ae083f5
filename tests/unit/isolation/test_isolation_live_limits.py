"""What slices may have just now: less where their pods say so, and less memory for best effort where memory lacks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.gpus.model import GpuUsage
from aliquot_agent.isolation.allowance import Allowed, bounded, given_way, lacking, restrained, whose
from aliquot_agent.isolation.beyond import LOOKS, Excess, Whose
from aliquot_agent.isolation.live_limits import LiveLimits
from aliquot_agent.web.accounts import SliceUse
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import QuantityError
from aliquot_core.restraint import Restraint, restraint_of
from aliquot_kube.client import KubeClient
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder
from support.clocks import VirtualClock
from support.fake_api import FakeApi
from support.node_figures import facts

NAMES = Names()
A, B = "GPU-a", "GPU-b"
FLOOR = 100
# Of a card as `facts` has it: 1,000 MiB, of which the driver keeps 100.
USABLE = 900


def floor(_: str) -> int:
    """Of every GPU."""
    return FLOOR


def one(
    uid: str,
    memory: int,
    used: int | None,
    *,
    compute: int = 0,
    limit: int = 100,
    gpu: str = A,
    container: str = "main",
    isolation: str = "interposer",
) -> SliceUse:
    """A slice, and what the driver says of it; best effort unless it has compute."""
    return SliceUse(
        namespace="team", pod=uid, uid=uid, container=container, gpu=gpu, compute=compute, limit=limit,
        memory_mib=memory, isolation=isolation, used_percent=0, used_mib=used,
    )  # fmt: skip


# --- what pods say of themselves -------------------------------------------------------------------------------------
RESTRAINTS: dict[str, tuple[Restraint, SliceUse, Allowed]] = {
    "nothing": (Restraint(), one("u", 800, 0, compute=30), Allowed(memory=800, limit=100)),
    "less": (Restraint(memory=300, compute=50), one("u", 800, 0, compute=30), Allowed(memory=300, limit=50)),
    "less than is held": (Restraint(memory=300), one("u", 800, 500), Allowed(memory=300, limit=100)),
    "less than a context": (Restraint(memory=20), one("u", 800, 0), Allowed(memory=FLOOR, limit=100)),
    "a slice below the floor": (Restraint(memory=20), one("u", 60, 0), Allowed(memory=60, limit=100)),
    "less than the guarantee": (Restraint(compute=10), one("u", 800, 0, compute=30), Allowed(memory=800, limit=30)),
    "best effort": (Restraint(compute=10), one("u", 800, 0), Allowed(memory=800, limit=10)),
    "more than granted": (
        Restraint(memory=9000, compute=100),
        one("u", 800, 0, limit=60),
        Allowed(memory=800, limit=60),
    ),
}


@pytest.mark.parametrize("what", RESTRAINTS)
def test_a_pod_may_have_less_and_never_more(what: str) -> None:
    """Between the floor and what was granted, and between its compute and its limit."""
    said, part, expected = RESTRAINTS[what]
    assert restrained([part], restraints={"u": said}, floor=floor) == {("u", "main", A): expected}


def test_several_gpus_of_a_container_give_their_parts() -> None:
    """In proportion, rounded up as grants are; its pod's other container is held to the same amount by itself."""
    parts = [one("u", 600, 0, compute=60), one("u", 301, 0, compute=30, gpu=B), one("u", 500, 0, container="side")]
    found = restrained(parts, restraints={"u": Restraint(memory=450, compute=150)}, floor=floor)
    assert [(each.memory, each.limit) for each in found.values()] == [(300, 75), (151, 75), (450, 100)]


def test_each_gpu_has_a_floor_of_its_own() -> None:
    """A context takes more of one model than of another: of both the container keeps so much."""
    parts = [one("u", 600, 0, compute=50), one("u", 600, 0, compute=50, gpu=B)]
    said, floors = Restraint(memory=100), {A: 100, B: 250}
    found = restrained(parts, restraints={"u": said}, floor=floors.__getitem__)
    assert [each.memory for each in found.values()] == [100, 250]
    assert "350" in bounded(parts, said, floor=floors.__getitem__)
    assert bounded(parts, Restraint(memory=350), floor=floors.__getitem__) == ""


def written(**notes: str) -> Pod:
    """A pod that says so."""
    annotations = {NAMES.of(name.replace("_", "-")): text for name, text in notes.items()}
    return msgspec.convert(
        {"metadata": {"name": "u", "namespace": "team", "uid": "u", "annotations": annotations}}, Pod
    )


def test_a_restraint_is_read_as_amounts_are() -> None:
    """In digits; where nothing is said it is as granted, and what is no amount is refused."""
    assert restraint_of(written(), names=NAMES) == Restraint()
    assert restraint_of(written(memory_now="4000", compute_now="40"), names=NAMES) == Restraint(memory=4000, compute=40)
    for wrong in (written(memory_now="much"), written(compute_now="0"), written(compute_now="-5")):
        with pytest.raises(QuantityError, match=r"annotation aliquot\.dev/(memory|compute)-now"):
            restraint_of(wrong, names=NAMES)


# --- what lacks ------------------------------------------------------------------------------------------------------
def lack(slices: Sequence[SliceUse], *, used: int | None, samples: int = LOOKS) -> int:
    """What has lacked for so many samples."""
    allowed, found = restrained(slices, restraints={}, floor=floor), Excess()
    for _ in range(samples):
        found = lacking(found, slices, allowed=allowed, used=used, usable=USABLE)
    return found.lasting


SOLD_OUT = [one("g", 500, 100, compute=50), one("b", 400, 150)]
LACKS: dict[str, tuple[Sequence[SliceUse], int | None, int]] = {
    "nobody but the slices": (SOLD_OUT, 250, 0),
    "a stranger, within what is let pass": (SOLD_OUT, 250 + 64, 0),
    "a stranger": (SOLD_OUT, 250 + 364, 300),
    "a stranger where not all is granted": ([one("g", 500, 100, compute=50)], 100 + 364, 0),
    "a slice that has more than granted": ([one("g", 500, 864, compute=50), one("b", 400, 150)], 864 + 150, 300),
    "unknown what all use": (SOLD_OUT, None, 0),
    "unknown what one uses": ([one("g", 500, None, compute=50), one("b", 400, 150)], 614, 0),
}


@pytest.mark.parametrize("what", LACKS)
def test_memory_lacks_where_others_hold_what_is_granted(what: str) -> None:
    """Less what is let pass, and never by a guess."""
    slices, used, expected = LACKS[what]
    assert lack(slices, used=used) == expected
    assert lack(slices, used=used, samples=LOOKS - 1) == 0


def test_who_holds_itself_back_leaves_that_to_others() -> None:
    """What its pod does not want now need not be there."""
    allowed = restrained(SOLD_OUT, restraints={"g": Restraint(memory=200)}, floor=floor)
    found = Excess()
    for _ in range(LOOKS):
        found = lacking(found, SOLD_OUT, allowed=allowed, used=614, usable=USABLE)
    assert found.lasting == 0


WAYS: dict[str, tuple[Sequence[SliceUse], int, dict[str, int]]] = {
    "nothing lacks": (SOLD_OUT, 0, {}),
    "best effort alone": (SOLD_OUT, 100, {"b": 300}),
    "no less than it holds": (SOLD_OUT, 300, {"b": 150}),
    "in proportion": ([one("b", 400, 100), one("c", 250, 150)], 100, {"b": 325, "c": 225}),
    "who has the floor": ([one("b", 400, 0), one("c", 100, 0)], 1000, {"b": FLOOR}),
    "not where nothing holds it": ([one("b", 400, 0, isolation="observe"), one("c", 400, 0)], 1000, {"c": FLOOR}),
}


@pytest.mark.parametrize("what", WAYS)
def test_best_effort_gives_way_first(what: str) -> None:
    """By what it has not taken yet."""
    slices, amount, expected = WAYS[what]
    allowed = restrained(slices, restraints={}, floor=floor)
    found = given_way(slices, allowed=allowed, lack=amount, floor=floor)
    assert {uid: each.memory for (uid, _, _), each in found.items()} == expected


parts = st.builds(
    one,
    st.sampled_from("abcd"),
    st.integers(1, 1000),
    st.none() | st.integers(0, 1500),
    compute=st.sampled_from([0, 0, 30]),
    container=st.sampled_from(["main", "side"]),
    isolation=st.sampled_from(["interposer", "mps"]),
)
said = st.builds(Restraint, memory=st.none() | st.integers(1, 1500), compute=st.none() | st.integers(1, 100))


@given(
    st.lists(parts, max_size=6, unique_by=whose),
    st.dictionaries(st.sampled_from("abcd"), said),
    st.integers(0, 3000),
)
def test_nobody_has_more_than_granted_or_loses_what_it_holds(
    slices: list[SliceUse], restraints: dict[str, Restraint], amount: int
) -> None:
    """Whatever pods say and however much lacks; and only best effort gives way, by no more than lacks."""
    own = restrained(slices, restraints=restraints, floor=floor)
    less = given_way(slices, allowed=own, lack=amount, floor=floor)
    for part in slices:
        now, before = less.get(whose(part), own[whose(part)]), own[whose(part)]
        assert min(part.memory_mib, FLOOR) <= now.memory <= before.memory <= part.memory_mib
        assert part.compute <= now.limit == before.limit <= part.limit
        if now.memory < before.memory:
            assert (part.compute, part.isolation) == (0, "interposer")
            assert now.memory >= (part.used_mib or 0)
    assert sum(own[name].memory - less[name].memory for name in less) <= amount + len(less)


# --- what pods are told ----------------------------------------------------------------------------------------------
class Node:
    """A node with two pods on one card, sold out: `g` has a guarantee, `b` is best effort."""

    def __init__(self) -> None:
        self.clock, self.api = VirtualClock(), FakeApi()
        events = EventRecorder(
            client=KubeClient(transport=self.api),
            clock=self.clock,
            random=lambda: 0.5,
            controller="c",
            instance="i",
            ledger=EventLedger(),
        )
        self.pods: dict[str, Pod] = {}
        for uid in ("g", "b"):
            self.say(uid, {})
        self.limits = LiveLimits(names=NAMES, events=events, pods=lambda: self.pods, floor=floor)
        self.run = asyncio.ensure_future(events.run())

    def say(self, uid: str, notes: Mapping[str, str]) -> None:
        """Let the watch tell of a pod that says so."""
        meta = {"name": uid, "namespace": "team", "uid": uid, "annotations": dict(notes)}
        self.pods[uid] = msgspec.convert({"metadata": meta}, Pod)

    async def sample(self, *, stranger: int = 0, times: int = 1) -> dict[Whose, Allowed]:
        """So many samples, with so much held by nobody's slice."""
        usage = GpuUsage(uuid=A, memory_used_mib=250 + stranger)
        for _ in range(times):
            self.limits.hear(SOLD_OUT, usages={A: usage}, facts={A: facts(A)})
            await self.clock.advance(10.0)
        return dict(self.limits.allowed)

    @property
    def told(self) -> list[tuple[str, str, str, str]]:
        """Of whom, type, reason and text of each Event."""
        made = [json.loads(each.body or b"{}") for each in self.api.asked if each.path.endswith("/events")]
        return [(each["regarding"]["name"], each["type"], each["reason"], each["note"]) for each in made]

    async def close(self) -> None:
        """End."""
        self.run.cancel()
        await asyncio.gather(self.run, return_exceptions=True)


G, BEST = ("g", "main", A), ("b", "main", A)


async def test_best_effort_is_told_when_memory_lacks_and_when_it_is_back() -> None:
    """Once each; its limit follows what lacks meanwhile, and the others keep theirs."""
    node = Node()
    await node.sample(stranger=164, times=LOOKS - 1)
    assert node.limits.allowed == {G: Allowed(memory=500, limit=100), BEST: Allowed(memory=400, limit=100)}
    await node.sample(stranger=164)
    assert node.limits.allowed == {G: Allowed(memory=500, limit=100), BEST: Allowed(memory=300, limit=100)}
    assert node.limits.lacks == {A: 100}
    await node.sample(stranger=264, times=LOOKS)
    assert node.limits.allowed[BEST].memory == 200
    await node.sample()
    assert (node.limits.allowed[BEST].memory, node.limits.lacks) == (400, {A: 0})
    assert node.told == [
        (
            "b",
            "Warning",
            "MemoryLacks",
            f"main is best effort, and may take less than its 400 MiB while others hold what is granted of GPU {A}",
        ),
        ("b", "Normal", "SliceWhole", f"main may have all again that it was granted of GPU {A}"),
    ]
    await node.close()


async def test_what_a_pod_says_of_itself_counts_with_the_next_sample() -> None:
    """And what it says no more, or what is no amount, does not."""
    node = Node()
    node.say("g", {NAMES.memory_now: "300", NAMES.compute_now: "60"})
    assert (await node.sample(times=2))[G] == Allowed(memory=300, limit=60)
    node.say("g", {NAMES.memory_now: "300"})
    assert (await node.sample())[G] == Allowed(memory=300, limit=100)
    node.say("g", {NAMES.memory_now: "a lot"})
    assert (await node.sample())[G] == Allowed(memory=500, limit=100)
    assert [(name, kind, reason) for name, kind, reason, _ in node.told] == [
        ("g", "Normal", "HoldsBack"), ("g", "Normal", "HoldsBack"), ("g", "Warning", "HoldsBackUnread"),
        ("g", "Normal", "SliceWhole"),
    ]  # fmt: skip
    assert node.told[0][3] == f"main may take 300 of 500 MiB and burst to 60 of 100 %, as its pod says, of GPU {A}"
    await node.close()


# Of a slice of 500 MiB and 50 to 100 %, where a context takes 100: what is in force, and what the pod is told.
BOUNDS: dict[str, tuple[dict[str, str], Allowed, str]] = {
    "below the floor": (
        {NAMES.memory_now: "20"},
        Allowed(memory=100, limit=100),
        (
            "may take 100 of 500 MiB and burst to 100 of 100 %, as its pod says "
            "(20 MiB are less than the 100 that a CUDA context takes),"
        ),
    ),
    "above the grant": (
        {NAMES.memory_now: "9000"},
        Allowed(memory=500, limit=100),
        "may have all (9000 MiB are more than the 500 that it was granted)",
    ),
    "below its compute": (
        {NAMES.compute_now: "10"},
        Allowed(memory=500, limit=50),
        (
            "may take 500 of 500 MiB and burst to 50 of 100 %, as its pod says "
            "(10 % are less than its compute of 50, which nobody takes from it),"
        ),
    ),
    "above its limit, and less memory": (
        {NAMES.memory_now: "300", NAMES.compute_now: "400"},
        Allowed(memory=300, limit=100),
        "may take 300 of 500 MiB and burst to 100 of 100 %, as its pod says (400 % are more than its limit of 100),",
    ),
    "just the bounds": ({NAMES.memory_now: "500", NAMES.compute_now: "100"}, Allowed(memory=500, limit=100), ""),
}


@pytest.mark.parametrize("what", BOUNDS)
async def test_what_is_not_to_be_had_is_told(what: str) -> None:
    """Once, with the amounts; what can be had of it is in force."""
    notes, allowed, words = BOUNDS[what]
    node = Node()
    node.say("g", notes)
    assert (await node.sample(times=3))[G] == allowed
    assert node.told == ([("g", "Normal", "HoldsBack", f"main {words} of GPU {A}")] if words else [])
    await node.close()


@pytest.mark.parametrize("name", [NAMES.memory_now, NAMES.compute_now])
@pytest.mark.parametrize(
    "text",
    ["a lot", "", "0", "-1", "nan", "NaN", "inf", "-inf", "1e400", "1e-400", "9" * 4000, "0x40", "½", "1.5", "1 2"],
)
async def test_what_can_t_be_read_takes_nothing_and_is_told_once(
    name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where no webhook looked, whatever was written: the pod has all, and an Event says which annotation it is."""
    node = Node()
    node.say("g", {name: text})
    assert (await node.sample(times=3))[G] == Allowed(memory=500, limit=100)
    ((who, kind, reason, note),) = node.told
    assert (who, kind, reason) == ("g", "Warning", "HoldsBackUnread")
    assert note.startswith(f"it has all that it was granted: annotation {name}: ")
    assert len(note) < 500
    node.say("g", {name: "ever more"})
    await node.sample(times=2)
    assert len(node.told) == 2
    # The recorder would make one Event of the same word at each sample.
    assert [one.message for one in caplog.records].count("limits can't be read") == 2
    await node.close()


async def test_a_card_of_which_nothing_is_known_takes_nothing_from_anybody() -> None:
    """Neither one without facts nor one that did not answer."""
    node = Node()
    await node.sample(stranger=400, times=LOOKS)
    assert node.limits.allowed[BEST].memory == 150
    node.limits.hear(SOLD_OUT, usages={}, facts={A: facts(A)})
    assert node.limits.allowed[BEST].memory == 400
    node.limits.hear(SOLD_OUT, usages={}, facts={})
    assert (node.limits.allowed[BEST].memory, node.limits.lacks) == (400, {})
    await node.close()
