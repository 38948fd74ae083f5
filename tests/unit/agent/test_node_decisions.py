"""Which ids name a GPU, for whom the kubelet asks, what a node publishes: the agent's smaller decisions."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.gpus.model import Discovery, DriverFacts, Fault, GpuFacts, GpuProblem
from aliquot_agent.health.inventories import Cards, failed, inventory, seen
from aliquot_agent.publishing.node_object import labels, patches
from aliquot_agent.publishing.others import given_by_others
from aliquot_agent.starting.device_ids import choose, device_tables, stems
from aliquot_agent.starting.kubelet_view import Listed, Recorded
from aliquot_agent.starting.preferences import agreed, candidates, narrowed
from aliquot_core.door import Prefer
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Gpu, Health, Inventory, encode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Node, Pod
from aliquot_core.quantities import MiB, Percent

NAMES = Names()
A = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
B = "GPU-bbbbbbbb-0000-0000-0000-000000000002"
TWO = Inventory(
    driver="580.1",
    gpus=(
        Gpu(uuid=A, index=0, model="NVIDIA A100-SXM4-80GB", memory=81_000, capability="8.0", numa=0),
        Gpu(uuid=B, index=1, model="NVIDIA A100-SXM4-80GB", memory=81_000, capability="8.0", numa=1),
    ),
)


class TestDeviceIds:
    """Ids are short, stable, and name a GPU."""

    @given(st.lists(st.uuids().map(lambda one: f"GPU-{one}"), unique=True, max_size=20))
    def test_every_gpu_has_a_stem_of_its_own(self, uuids: list[str]) -> None:
        """Two GPUs never share an id."""
        found = stems(uuids)
        assert len(set(found.values())) == len(uuids)
        assert all(len(stem) <= 32 for stem in found.values())

    def test_equal_beginnings_make_stems_longer(self) -> None:
        """Simulated and MIG uuids may begin alike."""
        found = stems(["GPU-abcdef-1", "GPU-abcdef-2"])
        assert set(found.values()) == {"abcdef1", "abcdef2"}

    def test_a_sick_gpu_s_ids_are_unhealthy_and_the_others_are_not(self) -> None:
        """One bad GPU never touches the others."""
        sick = msgspec.structs.replace(TWO.gpus[1], health=Health.SICK)
        tables = device_tables(msgspec.structs.replace(TWO, gpus=(TWO.gpus[0], sick)), names=NAMES, best_effort_slots=3)
        health = {device.id.split("-")[0]: device.healthy for device in tables[NAMES.compute]}
        assert health == {"aaaaaa": True, "bbbbbb": False}
        assert [len(tables[NAMES.compute]), len(tables[NAMES.best_effort])] == [200, 6]

    @given(
        st.sets(st.integers(0, 199)),
        st.integers(1, 100),
        st.sampled_from([{A: 30}, {B: 50}, {A: 100, B: 100}, {}]),
        st.integers(0, 5),
    )
    def test_a_choice_is_always_one_the_kubelet_can_take(
        self, numbers: set[int], size: int, wanted: dict[str, int], must: int
    ) -> None:
        """As many as asked where there are enough, from the available ones, with those that must be in it."""
        ids = [f"{'aaaaaa' if number < 100 else 'bbbbbb'}-{number % 100:02}" for number in sorted(numbers)]
        must_include = ids[:must][:size]
        chosen = choose(available=ids, must_include=must_include, size=size, wanted=wanted, inventory=TWO)
        assert len(chosen) == len(set(chosen)) == min(size, len(ids))
        assert set(must_include) <= set(chosen) <= set(ids)

    def test_the_granted_gpu_s_ids_come_first(self) -> None:
        """What the kubelet records stands for the GPU that was granted."""
        ids = [f"{stem}-{number:02}" for stem in ("aaaaaa", "bbbbbb") for number in range(100)]
        chosen = choose(available=ids, must_include=[], size=30, wanted={B: 30}, inventory=TWO)
        assert {device.split("-")[0] for device in chosen} == {"bbbbbb"}


def granted_pod(uid: str, gpu: str, compute: int = 30) -> Pod:
    """A pod bound with a grant on one GPU; without compute it is best effort."""
    part = Slice(gpu=gpu, compute=Percent(compute), limit=Percent(max(compute, 1)), memory=MiB(1_000))
    grant = Grant(node="n1", pod=uid, containers={"main": ContainerGrant(slices=(part,), isolation="observe")})
    return msgspec.convert(
        {
            "metadata": {
                "name": uid,
                "namespace": "team",
                "uid": uid,
                "annotations": {NAMES.grant: encode_grant(grant)},
            },
            "spec": {"nodeName": "n1"},
        },
        Pod,
    )


class TestPreferences:
    """For whom does the kubelet ask? Only what is sure is answered."""

    CALL = Prefer(call=1, resource=NAMES.compute, available=[], must_include=[], size=30)

    def test_a_lone_candidate_is_sure(self) -> None:
        """One pod waits for thirty ids: it is meant."""
        found = candidates(self.CALL, pods=[granted_pod("u1", A), granted_pod("u2", B, 20)], recorded=(), names=NAMES)
        assert agreed(found) == {A: 30}

    def test_a_container_that_has_its_ids_is_no_candidate(self) -> None:
        """The kubelet does not ask for it again."""
        done = Recorded(uid="u1", container="main", resource=NAMES.compute, ids=frozenset({"x"}), names=())
        found = candidates(self.CALL, pods=[granted_pod("u1", A), granted_pod("u2", B)], recorded=[done], names=NAMES)
        assert agreed(found) == {B: 30}

    def test_two_that_differ_are_told_apart_by_what_the_kubelet_lists(self) -> None:
        """The pod being admitted is listed and holds nothing; the next one is not listed yet."""
        found = candidates(self.CALL, pods=[granted_pod("u1", A), granted_pod("u2", B)], recorded=(), names=NAMES)
        assert agreed(found) is None
        listed = [Listed(namespace="team", name="u2", container="main", ids={})]
        assert agreed(narrowed(found, listed=listed)) == {B: 30}

    def test_best_effort_asks_for_one_id_of_its_gpu(self) -> None:
        """It has no percent to count."""
        call = msgspec.structs.replace(self.CALL, resource=NAMES.best_effort, size=1)
        found = candidates(call, pods=[granted_pod("u1", B, 0), granted_pod("u2", A)], recorded=(), names=NAMES)
        assert agreed(found) == {B: 1}


def make_node(**parts: object) -> Node:
    """A node as the API server has it."""
    return msgspec.convert({"metadata": {"name": "n1"}, **parts}, Node)


class TestPublishing:
    """A node that is right is not written to."""

    def test_a_bare_node_gets_all_three(self) -> None:
        """Inventory, labels and memory."""
        found = patches(make_node(), inventory=TWO, names=NAMES)
        assert found.status == {"status": {"capacity": {NAMES.memory: "162000"}}}
        assert found.metadata is not None
        assert found.metadata["metadata"]["annotations"] == {NAMES.inventory: encode_inventory(TWO)}
        assert found.metadata["metadata"]["labels"]["aliquot.dev/gpu.product"] == "NVIDIA-A100-SXM4-80GB"

    @pytest.mark.parametrize("memory", ["162000", "162k"])
    def test_a_right_node_gets_nothing(self, memory: str) -> None:
        """However Kubernetes likes to write the number."""
        node = make_node(
            metadata={
                "annotations": {NAMES.inventory: encode_inventory(TWO)},
                "labels": labels(TWO, names=NAMES) | {"other": "label"},
            },
            status={"capacity": {NAMES.memory: memory}},
        )
        found = patches(node, inventory=TWO, names=NAMES)
        assert (found.metadata, found.status) == (None, None)

    def test_a_clearing_that_was_taken_in_is_removed_and_no_later_one(self) -> None:
        """The write is bound to the node as it was seen: what an operator adds meanwhile makes it fail."""
        notes = {NAMES.inventory: encode_inventory(TWO), NAMES.clear_health: A}
        node = make_node(
            metadata={"annotations": notes, "labels": labels(TWO, names=NAMES), "resourceVersion": "7"},
            status={"capacity": {NAMES.memory: "162000"}},
        )
        found = patches(node, inventory=TWO, names=NAMES)
        assert found.metadata == {
            "metadata": {"annotations": {NAMES.clear_health: None}, "resourceVersion": "7"},
        }

    def test_stale_labels_of_ours_go_and_others_stay(self) -> None:
        """A node whose GPUs are gone must not be selected for its model."""
        node = make_node(metadata={"labels": {"aliquot.dev/gpu.product": "A100", "team": "x"}})
        found = patches(node, inventory=Inventory(problem="no driver"), names=NAMES)
        assert found.metadata is not None
        assert found.metadata["metadata"]["labels"] == {
            "aliquot.dev/gpu.product": None,
            "aliquot.dev/gpu.count": "0",
        }

    @given(st.text(max_size=100))
    def test_labels_are_always_values_that_kubernetes_takes(self, model: str) -> None:
        """A driver may call a model anything."""
        found = labels(Inventory(gpus=(Gpu(uuid=A, index=0, model=model, memory=1),)), names=NAMES)
        value = found.get("aliquot.dev/gpu.product", "ok")
        assert value
        assert len(value) <= 63
        assert value[0].isalnum()
        assert value[-1].isalnum()


def facts(uuid: str, index: int, **more: object) -> GpuFacts:
    """A GPU as the driver tells of it."""
    return msgspec.structs.replace(
        GpuFacts(
            uuid=uuid,
            index=index,
            minor=index,
            model="A100",
            memory_total_mib=81_920,
            memory_reserved_mib=600,
            compute_capability="8.0",
            architecture="Ampere",
            pci_bus_id=f"0000:0{index}:00.0",
        ),
        **more,
    )


class TestInventories:
    """What was seen once stays, sick if it can't be used."""

    DRIVER = DriverFacts(driver_version="580.1", nvml_version="13")

    def discovery(self, *gpus: GpuFacts, problems: tuple[GpuProblem, ...] = ()) -> Discovery:
        """What the driver says."""
        return Discovery(driver=self.DRIVER, gpus=gpus, problems=problems)

    def test_a_lost_gpu_stays_and_comes_back(self) -> None:
        """Its ids must not vanish from the kubelet while containers hold them."""
        both = seen(Cards(), self.discovery(facts(A, 0), facts(B, 1)), now=1.0)
        lost = seen(both, self.discovery(facts(A, 0)), now=1.0)
        assert [gpu.health for gpu in inventory(lost).gpus] == [Health.HEALTHY, Health.SICK]
        again = seen(lost, self.discovery(facts(A, 0), facts(B, 1)), now=1.0)
        assert [gpu.health for gpu in inventory(again).gpus] == [Health.HEALTHY, Health.HEALTHY]

    def test_a_gpu_that_only_can_t_be_watched_is_used(self) -> None:
        """Without XIDs it still computes."""
        problem = GpuProblem(fault=Fault.UNWATCHED, uuid=A, index=0, what="no events")
        cards = seen(Cards(), self.discovery(facts(A, 0), problems=(problem,)), now=1.0)
        assert inventory(cards).gpus[0].health is Health.HEALTHY

    def test_a_gpu_in_mig_mode_is_out(self) -> None:
        """Its memory belongs to its instances."""
        cards = seen(Cards(), self.discovery(facts(A, 0, mig_enabled=True)), now=1.0)
        assert "MIG mode is on" in inventory(cards).gpus[0].reason

    def test_a_driver_that_fails_takes_all_out_and_says_why(self) -> None:
        """Nothing is offered that nobody can speak for; nothing is forgotten either."""
        cards = failed(seen(Cards(), self.discovery(facts(A, 0)), now=1.0), reason="no answer")
        found = inventory(cards)
        assert (found.problem, found.memory, found.gpus[0].reason) == ("no answer", MiB(0), "no answer")

    def test_another_plugin_s_gpus_are_out(self) -> None:
        """A GPU has one master."""
        reason = given_by_others(make_node(status={"allocatable": {"nvidia.com/gpu": "8", "cpu": "4"}}))
        assert "nvidia.com/gpu" in reason
        found = inventory(seen(Cards(), self.discovery(facts(A, 0)), now=1.0), outside=reason)
        assert found.gpus[0].health is Health.SICK
        assert given_by_others(make_node(status={"allocatable": {"nvidia.com/gpu": "0", "cpu": "4"}})) == ""
