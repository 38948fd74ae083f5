"""What must always hold of the device table, whatever plugins and pods do."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict

import hypothesis.strategies as st
from hypothesis import given, settings

from aliquot_standalone.kubelet import checkpoint
from aliquot_standalone.kubelet.choosing import Answer, Device, Options, Prefer
from aliquot_standalone.kubelet.devices import DeviceTable, Need, Role
from aliquot_standalone.kubelet.errors import AdmissionError, PluginError

RESOURCES = ["example.test/a", "example.test/b"]
IDS = [f"d{number}" for number in range(8)]

counts = st.integers(min_value=0, max_value=4)
needs = st.builds(
    lambda role, first, second: (role, {RESOURCES[0]: first, RESOURCES[1]: second}),
    st.sampled_from(list(Role)),
    counts,
    counts,
)
numa = st.sampled_from([(), (0,), (1,), (0, 1)])
devices = st.dictionaries(st.sampled_from(IDS), st.tuples(st.booleans(), numa))
steps = st.one_of(
    st.tuples(st.just("admit"), st.lists(needs, min_size=1, max_size=4), st.integers(0, 2**32)),
    st.tuples(st.just("end"), st.integers(0, 20), st.none()),
    st.tuples(st.just("list"), st.sampled_from(RESOURCES), devices),
    st.tuples(st.just("gone"), st.sampled_from(RESOURCES), st.none()),
    st.tuples(st.just("restart"), st.none(), st.none()),
)


class World:
    """A table, the pods that live, and a plugin that answers by luck, badly too."""

    def __init__(self) -> None:
        self.table = DeviceTable()
        self.live: dict[str, list[Need]] = {}
        self._names = itertools.count()
        for resource in RESOURCES:
            self.table.connected(resource, Options(preferred=True))
            self.table.listed(resource, [Device(id=one) for one in IDS])

    def admit(self, asked: list[tuple[Role, dict[str, int]]], seed: int) -> None:
        """Admit a pod; a refused one stays dead."""
        luck = random.Random(seed)
        pod = f"pod{next(self._names)}"
        ordered = sorted(asked, key=lambda need: need[0] is Role.APP)
        wanted = [
            Need(container=f"c{index}", role=role, resources=amounts) for index, (role, amounts) in enumerate(ordered)
        ]
        self.table.free_all_but(self.live)
        node = luck.choice([None, frozenset({0}), frozenset({1})])
        running = self.table.admit(pod=pod, needs=wanted, affinity=lambda _container, _resource: node)
        self.live[pod] = wanted
        try:
            question = next(running)
            while True:
                if luck.random() < 0.1:
                    running.throw(PluginError("by luck"))
                ids = luck.sample([*IDS, "nonsense"], k=luck.randrange(6)) if isinstance(question, Prefer) else []
                question = running.send(Answer(ids=tuple(ids), response=b"x"))
        except StopIteration:
            self._got_what_it_asked(pod)
        except (AdmissionError, PluginError):
            del self.live[pod]

    def _got_what_it_asked(self, pod: str) -> None:
        for need in self.live[pod]:
            held = self.table.holdings.of(pod, need.container)
            for resource, count in need.resources.items():
                if self.table.knows(resource):
                    assert (len(held[resource].ids) if resource in held else 0) == count

    def restart(self) -> None:
        """A new kubelet reads the old one's checkpoint."""
        saved = checkpoint.decode(checkpoint.encode(self.table.holdings, self.table.registered()))
        self.table = DeviceTable()
        for key, held in saved.holdings.items():
            self.table.holdings.record(key, held)
        self.table.remembered(saved.registered, now=0.0)

    def check(self) -> None:
        """No id of two live pods; within a pod only an ordinary init container shares."""
        holders: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        for key, held in self.table.holdings:
            if key.pod in self.live:
                for one in held.ids:
                    holders[key.resource, one].append((key.pod, key.container))
        for sharing in holders.values():
            assert len({pod for pod, _ in sharing}) == 1
            roles = [need.role for pod, name in sharing for need in self.live[pod] if need.container == name]
            assert sum(role is not Role.INIT for role in roles) <= 1


@settings(deadline=None, max_examples=150)
@given(st.lists(steps, max_size=25))
def test_no_id_is_held_by_two_live_pods(script: list[tuple[str, object, object]]) -> None:
    """Through failures, sickness, restarts and bad advice no id has two owners; who is admitted got all it asked."""
    world = World()
    for action, first, second in script:
        if action == "admit":
            world.admit(first, second)  # type: ignore[arg-type] # drawn together
        elif action == "end" and world.live:
            world.live.pop(list(world.live)[first % len(world.live)])  # type: ignore[operator] # an index
        elif action == "list":
            listed = [Device(id=one, healthy=well, numa=nodes) for one, (well, nodes) in second.items()]  # type: ignore[attr-defined] # a dict
            world.table.connected(str(first), Options(preferred=True))
            world.table.listed(str(first), listed)
        elif action == "gone":
            world.table.gone(str(first), now=0.0)
        elif action == "restart":
            world.restart()
        world.check()
