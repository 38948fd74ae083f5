"""The small kubelet's device table: who gets which ids, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from aliquot_core.errors import DefectError
from aliquot_standalone.kubelet.choosing import Allocate, Answer, Device, Options, Prefer
from aliquot_standalone.kubelet.devices import DeviceTable, Need, Role
from aliquot_standalone.kubelet.errors import AdmissionError, PluginError
from aliquot_standalone.kubelet.holdings import HoldingKey

COMPUTE = "example.test/compute"
OTHER = "example.test/other"


def table(
    *ids: str, resource: str = COMPUTE, preferred: bool = False, numa: dict[str, tuple[int, ...]] | None = None
) -> DeviceTable:
    """A table with one plugin that offers these ids."""
    made = DeviceTable()
    made.connected(resource, Options(preferred=preferred))
    made.listed(resource, [Device(id=one, numa=(numa or {}).get(one, ())) for one in ids])
    return made


def admit(
    devices: DeviceTable,
    pod: str,
    *needs: Need,
    prefer: Callable[[Prefer], Sequence[str]] = lambda _: (),
    running: Sequence[str] = (),
    numa: frozenset[int] | None = None,
) -> list[Prefer | Allocate]:
    """Admit a pod with a plugin that answers everything; what it was asked."""
    asked: list[Prefer | Allocate] = []
    steps = devices.admit(pod=pod, needs=needs, running=running, affinity=lambda _container, _resource: numa)
    try:
        question = next(steps)
        while True:
            asked.append(question)
            ids = prefer(question) if isinstance(question, Prefer) else ()
            question = steps.send(Answer(ids=tuple(ids), response=b"answer"))
    except StopIteration:
        return asked


def need(container: str, count: int, role: Role = Role.APP, resource: str = COMPUTE) -> Need:
    """A container that asks so many devices."""
    return Need(container=container, role=role, resources={resource: count})


def ids(devices: DeviceTable, pod: str, container: str, resource: str = COMPUTE) -> list[str]:
    """What a container holds."""
    held = devices.holdings.get(HoldingKey(pod, container, resource))
    return sorted(held.ids) if held else []


def test_free_ids_are_taken_in_order() -> None:
    """Without preference ids come in the table's order, and never twice."""
    devices = table("a", "b", "c")
    admit(devices, "one", need("main", 2))
    admit(devices, "two", need("main", 1))
    assert (ids(devices, "one", "main"), ids(devices, "two", "main")) == (["a", "b"], ["c"])


def test_preferred_ids_win_as_far_as_they_are_free() -> None:
    """A preference is advice: ids in use or unknown in it are passed over, and what is missing is filled up."""
    devices = table("a", "b", "c", "d", preferred=True)
    admit(devices, "one", need("main", 1), prefer=lambda _: ["d"])
    asked = admit(devices, "two", need("main", 2), prefer=lambda _: ["d", "nonsense", "c"])
    assert ids(devices, "two", "main") == ["a", "c"]
    assert asked[0] == Prefer(resource=COMPUTE, available=["a", "b", "c"], must_include=[], size=2)


def test_init_container_hands_its_ids_on() -> None:
    """An app container takes its pod's init container's ids first, and the plugin is told that they are included."""
    devices = table("a", "b", "c", "d", preferred=True)
    asked = admit(devices, "pod", need("init", 1, Role.INIT), need("main", 3), prefer=lambda q: ["b", *q.must_include])
    prefers = [question for question in asked if isinstance(question, Prefer)]
    assert ids(devices, "pod", "init") == ["b"]
    assert set(ids(devices, "pod", "main")) > {"b"}
    assert prefers[1] == Prefer(resource=COMPUTE, available=["a", "b", "c", "d"], must_include=["b"], size=3)


def test_init_containers_ids_suffice_unasked() -> None:
    """Where reused ids are enough the plugin is not asked for a preference, but Allocate is called again."""
    devices = table("a", "b", preferred=True)
    asked = admit(devices, "pod", need("init", 2, Role.INIT), need("main", 1))
    assert [type(question) for question in asked] == [Prefer, Allocate, Allocate]
    assert set(ids(devices, "pod", "main")) < set(ids(devices, "pod", "init"))


def test_sidecar_keeps_its_ids() -> None:
    """What a sidecar holds is not handed on; an init container after it may not use it either."""
    devices = table("a", "b", "c", "d")
    admit(devices, "pod", need("side", 2, Role.SIDECAR), need("init", 1, Role.INIT), need("main", 2))
    held = {name: set(ids(devices, "pod", name)) for name in ("side", "init", "main")}
    assert held["side"].isdisjoint(held["init"] | held["main"])
    assert held["init"] < held["main"]


def test_two_app_containers_share_no_id() -> None:
    """The first app container takes reused ids away from the second."""
    devices = table("a", "b", "c")
    admit(devices, "pod", need("init", 2, Role.INIT), need("one", 2), need("two", 1))
    assert set(ids(devices, "pod", "one")).isdisjoint(ids(devices, "pod", "two"))


@pytest.mark.parametrize(
    ("prepare", "count", "words"),
    [
        (lambda _: None, 3, "3 more of example.test/compute asked, 2 free"),
        (lambda made: made.gone(COMPUTE, now=0.0), 1, "no healthy device"),
        (lambda made: made.listed(COMPUTE, []), 1, "no healthy device"),
        (lambda made: made.listed(COMPUTE, [Device(id="a"), Device(id="b", healthy=False)]), 2, "1 free"),
    ],
)
def test_refusals_say_why(prepare: Callable[[DeviceTable], None], count: int, words: str) -> None:
    """What can't be given is refused in words, and nothing stays held."""
    devices = table("a", "b")
    prepare(devices)
    with pytest.raises(AdmissionError, match=words):
        admit(devices, "pod", need("main", count))
    assert len(devices.holdings) == 0


def test_resource_that_expired_is_refused_while_somebody_holds_it() -> None:
    """A plugin's resource that is gone for good, but still held, counts as unregistered for the next pod."""
    devices = table("a", "b")
    admit(devices, "one", need("main", 1))
    devices.gone(COMPUTE, now=0.0)
    assert devices.totals(now=301.0).removed == {COMPUTE}
    with pytest.raises(AdmissionError, match="no plugin has registered"):
        admit(devices, "two", need("main", 1))


def test_unknown_resource_is_nobodys_business() -> None:
    """A name that no plugin ever registered asks for no device."""
    devices = table("a")
    assert admit(devices, "pod", need("main", 5, resource="example.test/unknown")) == []


def test_admitting_again_asks_nothing() -> None:
    """A pod that has its devices keeps them unasked, unless one of them is sick or it asks another number."""
    devices = table("a", "b")
    admit(devices, "pod", need("main", 1))
    assert admit(devices, "pod", need("main", 1)) == []
    with pytest.raises(AdmissionError, match=r"holds 1 .* now asks 2"):
        admit(devices, "pod", need("main", 2))
    devices.listed(COMPUTE, [Device(id="a", healthy=False), Device(id="b")])
    with pytest.raises(AdmissionError, match="have become unhealthy"):
        admit(devices, "pod", need("main", 1))


def test_container_found_running_is_left_alone() -> None:
    """After a restart a container that runs needs no plugin; one that does not run does."""
    devices = table("a", "b")
    admit(devices, "pod", need("main", 1))
    devices.remembered([COMPUTE], now=0.0)
    assert admit(devices, "pod", need("main", 1), running=["main"]) == []
    with pytest.raises(AdmissionError, match="no healthy device"):
        admit(devices, "pod", need("main", 1))


def test_failed_allocate_leaves_nothing_of_that_container() -> None:
    """Ids of a failed Allocate are free again; an earlier container's stay until the pod is known to have ended."""
    devices = table("a", "b", "c")
    steps = devices.admit(pod="pod", needs=[need("one", 1), need("two", 1)])
    next(steps)
    steps.send(Answer())
    with pytest.raises(PluginError):
        steps.throw(PluginError("no"))
    assert devices.holdings.in_use(COMPUTE) == {"a"}
    devices.free_all_but([])
    assert devices.holdings.in_use(COMPUTE) == frozenset()


def test_one_admission_at_a_time() -> None:
    """A second admission before the first has ended is our own mistake; an abandoned one counts as ended."""
    devices = table("a", "b")
    steps = devices.admit(pod="one", needs=[need("main", 1)])
    next(steps)
    with pytest.raises(DefectError):
        next(devices.admit(pod="two", needs=[need("main", 1)]))
    steps.close()
    admit(devices, "two", need("main", 2))
    assert ids(devices, "two", "main") == ["a", "b"]


def test_aligned_ids_come_first_and_plugin_chooses_among_them() -> None:
    """With room on the wanted NUMA node the plugin is asked about that node's ids only."""
    numa: dict[str, tuple[int, ...]] = {"a": (0,), "b": (0,), "c": (1,), "d": (1,), "e": (1,)}
    devices = table(*numa, preferred=True, numa=numa)
    asked = admit(devices, "pod", need("main", 2), prefer=lambda _: ["a", "e"], numa=frozenset({1}))
    assert asked[0] == Prefer(resource=COMPUTE, available=["c", "d", "e"], must_include=[], size=2)
    assert ids(devices, "pod", "main") == ["c", "e"]


def test_too_few_aligned_ids_are_all_taken_then_the_rest() -> None:
    """Without enough on the wanted node all its ids are taken unasked, then preferred ones, then those of no node."""
    numa = {"a": (), "b": (0,), "c": (0,), "d": (1,)}
    devices = table(*numa, preferred=True, numa=numa)
    asked = admit(devices, "pod", need("main", 2), prefer=lambda _: ["c"], numa=frozenset({1}))
    assert asked[0] == Prefer(resource=COMPUTE, available=["a", "b", "c", "d"], must_include=["d"], size=2)
    assert ids(devices, "pod", "main") == ["c", "d"]
    devices.free_all_but([])
    admit(devices, "pod", need("main", 3), numa=frozenset({1}))
    assert ids(devices, "pod", "main") == ["b", "c", "d"]


def test_holdings_are_kept_by_numa_node() -> None:
    """A device of two nodes is recorded under both, one of none under -1, as the checkpoint wants it."""
    numa: dict[str, tuple[int, ...]] = {"a": (0, 1), "b": ()}
    devices = table(*numa, numa=numa)
    admit(devices, "pod", need("main", 2))
    held = devices.holdings.get(HoldingKey("pod", "main", COMPUTE))
    assert held
    assert held.ids_by_numa == {0: ["a"], 1: ["a"], -1: ["b"]}


def test_totals_follow_health_and_grace() -> None:
    """Sick devices stay in capacity; a plugin's end empties allocatable at once, capacity 5 minutes later."""
    devices = table("a", "b")
    devices.listed(COMPUTE, [Device(id="a"), Device(id="b", healthy=False)])
    assert (devices.totals(now=0.0).capacity, devices.totals(now=0.0).allocatable) == ({COMPUTE: 2}, {COMPUTE: 1})
    devices.gone(COMPUTE, now=10.0)
    assert (devices.totals(now=310.0).capacity, devices.totals(now=310.0).allocatable) == ({COMPUTE: 2}, {COMPUTE: 0})
    late = devices.totals(now=310.1)
    assert not late.capacity
    assert not late.allocatable
    assert late.removed == {COMPUTE}


def test_plugin_that_returns_in_time_is_whole_again() -> None:
    """Registering again ends the grace time; devices come back with the next list and not before."""
    devices = table("a")
    devices.gone(COMPUTE, now=0.0)
    devices.connected(COMPUTE, Options())
    assert devices.totals(now=1_000.0).allocatable == {COMPUTE: 0}
    devices.listed(COMPUTE, [Device(id="a")])
    assert devices.totals(now=1_000.0).allocatable == {COMPUTE: 1}


def test_plugin_is_awaited_until_it_tells_its_devices_anew() -> None:
    """One of an earlier life or one that went away is awaited until its next list; one never heard of is not."""
    devices = DeviceTable()
    devices.connected(COMPUTE, Options())
    assert devices.awaited() == frozenset()
    devices.remembered([COMPUTE], now=0.0)
    assert devices.awaited() == {COMPUTE}
    devices.connected(COMPUTE, Options())
    assert devices.awaited() == {COMPUTE}
    devices.listed(COMPUTE, [])
    assert devices.awaited() == frozenset()
    devices.gone(COMPUTE, now=1.0)
    assert devices.awaited() == {COMPUTE}


def test_plugin_without_a_list_is_not_yet_a_resource() -> None:
    """Between registration and the first list a pod's request is nobody's business, as with the kubelet."""
    devices = DeviceTable()
    devices.connected(COMPUTE, Options())
    assert not devices.knows(COMPUTE)
    assert devices.registered() == {}


def test_pre_start_is_wanted_by_the_plugins_word() -> None:
    """After a restart, before the plugin is back, nobody wants a call; a resource never seen is an error."""
    devices = DeviceTable()
    devices.remembered([COMPUTE], now=0.0)
    assert not devices.wants_pre_start(COMPUTE)
    devices.connected(COMPUTE, Options(pre_start=True))
    assert devices.wants_pre_start(COMPUTE)
    with pytest.raises(PluginError):
        devices.wants_pre_start(OTHER)
