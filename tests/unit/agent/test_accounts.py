"""Processes are put to the account of slices: to one or to none, and what is not known is left out."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.gpus.model import GpuProcess, GpuUsage, ProcessKind
from aliquot_agent.isolation.gpu_modes import Seat, Use
from aliquot_agent.isolation.gpu_modes import Told as KeeperTold
from aliquot_agent.pods.dwellings import Dwelling
from aliquot_agent.pods.standing import Standing
from aliquot_agent.starting.decision import Known
from aliquot_agent.web.accounting import Accounting
from aliquot_agent.web.accounts import Accounts, Owner, SliceUse, Tenant, accounts
from aliquot_agent.web.usage_watch import Sample
from aliquot_core.claims import Claim
from aliquot_core.grant import ContainerGrant, Grant, Slice
from aliquot_core.inventory import Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent

A, B = "GPU-a", "GPU-b"


def tenant(uid: str, **containers: list[str]) -> tuple[str, Tenant]:
    """A pod whose containers hold 10 percent and 100 MiB of each of these GPUs."""
    grant = Grant(
        node="n1",
        pod=uid,
        containers={
            name: ContainerGrant(
                slices=tuple(Slice(gpu=gpu, compute=Percent(10), limit=Percent(20), memory=MiB(100)) for gpu in gpus),
                isolation="interposer",
            )
            for name, gpus in containers.items()
        },
    )
    statuses = [{"name": name, "containerID": f"containerd://{uid}-{name}"} for name in containers]
    body = {"metadata": {"name": uid, "namespace": "team", "uid": uid}, "status": {"containerStatuses": statuses}}
    return uid, Tenant(pod=msgspec.convert(body, Pod), grant=grant)


def usage(gpu: str, *processes: tuple[int, int | None, int | None]) -> GpuUsage:
    """A GPU with processes of (pid, MiB, percent)."""
    found = tuple(
        GpuProcess(pid=pid, memory_mib=memory, sm_percent=percent, kind=ProcessKind.COMPUTE)
        for pid, memory, percent in processes
    )
    return GpuUsage(uuid=gpu, memory_used_mib=0, processes=found)


def settle(
    usages: list[GpuUsage],
    homes: dict[int, str],
    *tenants: tuple[str, Tenant],
    standing: dict[str, list[str]] | None = None,
    servers: tuple[int, ...] = (),
) -> Accounts:
    """Account for them; homes are written as `pod/container`, `pod/` and empty for the node itself."""
    dwellings = {
        pid: (Dwelling(pod=home.partition("/")[0], container_id=home.replace("/", "-")),) if home else ()
        for pid, home in homes.items()
    }
    left = {uid: Standing(pod=uid, claims=dict.fromkeys(gpus, Claim())) for uid, gpus in (standing or {}).items()}
    return accounts(usages=usages, dwellings=dwellings, tenants=dict(tenants), standing=left, servers=servers)


def used(found: Accounts) -> dict[tuple[str, str], tuple[int | None, int | None]]:
    """MiB and percent by container and GPU."""
    return {(one.container, one.gpu): (one.used_mib, one.used_percent) for one in found.slices}


def test_what_a_server_of_mps_may_have_done_for_its_clients_is_not_known() -> None:
    """It is nobody's and no stranger; use of its GPU is what is told of a container's own processes, never nothing."""
    found = settle(
        [usage(A, (1, 30, 5), (2, 40, 0), (9, 25, 60)), usage(B, (3, 7, 0))],
        {1: "u1/main", 2: "u2/main", 3: "u3/main", 9: "aliquot-mps/mps"},
        *(tenant("u1", main=[A]), tenant("u2", main=[A]), tenant("u3", main=[B]), tenant("u4", main=[A])),
        servers=(9,),
    )
    assert [(one.uid, one.used_mib, one.used_percent) for one in found.slices] == [
        ("u1", 30, 5),
        ("u2", 40, None),
        ("u3", 7, 0),
        ("u4", None, None),
    ]
    assert (found.strangers, found.trespassers) == ({}, ())


class Everybody:
    """A register by which every process lives in one pod."""

    def dwellings(self, pids: Collection[int]) -> dict[int, tuple[Dwelling, ...]]:
        """Where they live."""
        return dict.fromkeys(pids, (Dwelling(pod="p", container_id="c"),))


def test_the_keeper_s_word_says_which_processes_are_mps_s_own() -> None:
    """What it tells of a GPU's servers reaches the accounts, and what it tells of GPUs the metrics."""
    accounting = Accounting(register=Everybody(), grant="grant")
    seat = Seat(wanted=Use.SHARED, told=KeeperTold(use=Use.SHARED, servers=(9,)))
    sample = Sample(at=1.0, usages=(usage(A, (9, 25, 60)),))
    known = Known(node="n1", names=Names(), inventory=Inventory(), pods={}, recorded=())
    for seats, strangers in (({}, {(A, Owner.POD): 1}), ({A: seat}, {})):
        told = accounting.account(msgspec.structs.replace(known, seats=seats), sample)
        assert told.sampled.accounts.strangers == strangers
        blind = accounting.account(msgspec.structs.replace(known, seats=seats, recorded=None), sample)
        assert told.sampled.seats == blind.sampled.seats == seats


def test_processes_of_one_container_add_up_by_gpu() -> None:
    """And what was granted stands beside it."""
    found = settle(
        [usage(A, (1, 30, 5), (2, 40, 6)), usage(B, (1, 7, 0))],
        {1: "u1/main", 2: "u1/main"},
        tenant("u1", main=[A, B]),
    )
    assert used(found) == {("main", A): (70, 11), ("main", B): (7, 0)}
    assert found.slices[0] == SliceUse(
        namespace="team",
        pod="u1",
        uid="u1",
        container="main",
        gpu=A,
        compute=10,
        limit=20,
        memory_mib=100,
        isolation="interposer",
        used_percent=11,
        used_mib=70,
    )
    assert found.strangers == {}


def test_containers_of_one_pod_are_told_apart() -> None:
    """By the container's id in the pod's status."""
    found = settle([usage(A, (1, 30, 5), (2, 40, 6))], {1: "u1/main", 2: "u1/side"}, tenant("u1", main=[A], side=[A]))
    assert used(found) == {("main", A): (30, 5), ("side", A): (40, 6)}


def test_a_slice_without_a_process_uses_nothing() -> None:
    """If the driver's list is accounted for."""
    assert used(settle([usage(A)], {}, tenant("u1", main=[A]))) == {("main", A): (0, 0)}


def test_a_gpu_that_was_not_sampled_is_not_known() -> None:
    """Its slices are told with what was granted alone."""
    assert used(settle([], {}, tenant("u1", main=[A]))) == {("main", A): (None, None)}


def test_a_process_that_nobody_can_place_leaves_empty_slices_unknown() -> None:
    """It may be theirs; what others were seen to use stands."""
    found = settle(
        [usage(A, (1, 30, 5), (9, 1, 1)), usage(B)], {1: "u1/main"}, tenant("u1", main=[A]), tenant("u2", main=[A, B])
    )
    assert [(one.pod, one.gpu, one.used_mib) for one in found.slices] == [("u1", A, 30), ("u2", A, None), ("u2", B, 0)]
    assert found.strangers == {(A, Owner.UNKNOWN): 1}


def test_what_the_driver_hides_is_not_known() -> None:
    """A sum of which a part is missing is no sum."""
    found = settle([usage(A, (1, None, 5), (2, 40, None))], {1: "u1/main", 2: "u1/main"}, tenant("u1", main=[A]))
    assert used(found) == {("main", A): (None, None)}


def test_a_container_that_the_api_server_does_not_know_yet_is_not_guessed() -> None:
    """The status comes a second after the process."""
    found = settle([usage(A, (1, 30, 5))], {1: "u1/new"}, tenant("u1", main=[A]))
    assert (used(found), found.strangers) == ({("main", A): (None, None)}, {})


@pytest.mark.parametrize(
    ("home", "owner"),
    [("stranger/main", Owner.POD), ("u2/main", Owner.POD), ("u3/side", Owner.POD), ("", Owner.HOST)],
)
def test_a_process_without_a_grant_is_counted_by_whose_it_is(home: str, owner: Owner) -> None:
    """Another pod's, one whose slice is on another GPU, a container beside the one with the slice, the node's."""
    found = settle(
        [usage(A, (1, 30, 5))],
        {1: home},
        tenant("u1", main=[A]),
        tenant("u2", main=[B]),
        tenant("u3", main=[A], side=[B]),
    )
    assert found.strangers == {(A, owner): 1}
    assert used(found)["main", A] == (0, 0)


def test_a_pod_of_whom_only_processes_are_left_is_no_stranger_on_its_gpu() -> None:
    """Its claims still count; on another GPU it has none."""
    found = settle([usage(A, (1, 30, 5)), usage(B, (1, 1, 1))], {1: "gone/main"}, standing={"gone": [A]})
    assert found.strangers == {(B, Owner.POD): 1}


def test_a_container_that_has_ended_is_told_no_more() -> None:
    """An init container's series goes when it is done."""
    uid, one = tenant("u1", main=[A], init=[A])
    ended = {
        "containerStatuses": [{"name": "main", "containerID": "containerd://u1-main", "state": {"running": {}}}],
        "initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 0}}}],
    }
    pod = msgspec.convert({"metadata": {"name": "u1", "uid": "u1"}, "status": ended}, Pod)
    found = settle([usage(A)], {}, (uid, Tenant(pod=pod, grant=one.grant)))
    assert used(found) == {("main", A): (0, 0)}


def test_the_pod_that_is_known_here_is_meant() -> None:
    """A process of a node inside a pod lives in two."""
    dwellings = {1: (Dwelling(pod="outer", container_id="x"), Dwelling(pod="u1", container_id="u1-main"))}
    found = accounts(
        usages=[usage(A, (1, 30, 5))], dwellings=dwellings, tenants=dict([tenant("u1", main=[A])]), standing={}
    )
    assert used(found) == {("main", A): (30, 5)}


_HOMES = st.sampled_from(["u1/main", "u1/side", "u1/new", "u2/main", "x/y", "", None])
_PROCESS = st.tuples(st.sampled_from([A, B]), st.one_of(st.none(), st.integers(0, 99)), _HOMES)


@given(st.lists(_PROCESS, max_size=12))
def test_nothing_is_counted_twice_and_nothing_is_made_up(processes: list[tuple[str, int | None, str | None]]) -> None:
    """What slices use, all together, is never more than what processes hold."""
    usages = [
        usage(gpu, *((pid, memory, memory) for pid, (on, memory, _) in enumerate(processes) if on == gpu))
        for gpu in (A, B)
    ]
    homes = {pid: home for pid, (_, _, home) in enumerate(processes) if home is not None}
    found = settle(usages, homes, tenant("u1", main=[A], side=[A, B]), tenant("u2", main=[B]))
    for gpu in (A, B):
        held = sum(memory or 0 for on, memory, _ in processes if on == gpu)
        assert sum(one.used_mib or 0 for one in found.slices if one.gpu == gpu) <= held
    assert sum(found.strangers.values()) <= len(processes)
    assert len(found.slices) == 4
