"""What a node makes of GPUs in MIG mode: which instances it offers, which it does not and why, and their ids."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_agent.gpus.model import (
    Discovery,
    DriverFacts,
    EventKind,
    Fault,
    GpuEvent,
    GpuFacts,
    GpuProblem,
    GpuProcess,
    GpuUsage,
    InstanceFacts,
    ProcessKind,
)
from aliquot_agent.health.inventories import Cards, failed, inventory, seen
from aliquot_agent.health.judging import heard, marked
from aliquot_agent.health.marks import Marks
from aliquot_agent.health.xids import HealthSettings, policy
from aliquot_agent.isolation.offering import Offered, by_hardware, only_observed
from aliquot_agent.pods.dwellings import Dwelling
from aliquot_agent.publishing.node_object import labels
from aliquot_agent.starting.device_ids import device_tables
from aliquot_agent.starting.preferences import agreed, candidates
from aliquot_agent.web.accounts import Owner, Tenant, accounts
from aliquot_agent.web.figures import Figures, Sampled
from aliquot_agent.web.metrics import FiguresCollector
from aliquot_core.door import Prefer
from aliquot_core.grant import ContainerGrant, Grant, Slice
from aliquot_core.inventory import Gpu, Health, Inventory, decode_inventory, encode_inventory
from aliquot_core.quantities import MiB, Percent
from support.centre import NAMES, asks, with_grant
from support.mig import instances

DRIVER = DriverFacts(driver_version="580.1", nvml_version="13")
CARD = GpuFacts(
    uuid="GPU-a",
    index=0,
    minor=3,
    model="NVIDIA A100-SXM4-80GB",
    memory_total_mib=81_920,
    memory_reserved_mib=634,
    compute_capability="8.0",
    architecture="ampere",
    pci_bus_id="0000:01:00.0",
)
CUT = msgspec.structs.replace(CARD, mig_enabled=True, mig_wanted=True)


def part(number: int, *, slices: int = 1, used: int | None = None, card: str = "GPU-a") -> GpuFacts:
    """An instance of the card."""
    instance = InstanceFacts(
        parent=card,
        gpu_instance=number + 7,
        compute_instance=0,
        of_card=7,
        slices=slices,
        used_slices=slices if used is None else used,
    )
    return msgspec.structs.replace(
        CARD, uuid=f"MIG-{number}", memory_total_mib=9_856, memory_reserved_mib=16, instance=instance
    )


def told(*gpus: GpuFacts, problems: tuple[GpuProblem, ...] = (), before: Cards | None = None) -> Cards:
    """After the driver told of these."""
    return seen(before or Cards(), Discovery(driver=DRIVER, gpus=gpus, problems=problems), now=1.0)


def test_instances_stand_for_their_card() -> None:
    """Each is one GPU of the inventory, in the order of the driver's numbers; the card is none beside them."""
    last = msgspec.structs.replace(part(2), uuid="MIG-+")
    found = inventory(told(CUT, last, part(1, slices=3), part(0)))
    assert [(gpu.uuid, gpu.compute.value, gpu.usable.value) for gpu in found.gpus] == [
        ("MIG-0", 14, 9_840),
        ("MIG-1", 42, 9_840),
        ("MIG-+", 14, 9_840),
    ]
    assert {(gpu.index, gpu.minor, gpu.mig, gpu.health) for gpu in found.gpus} == {(0, 3, False, Health.HEALTHY)}
    assert found.memory == MiB(3 * 9_840)
    assert decode_inventory(encode_inventory(found)) == found


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        ([CUT], "MIG mode is on and there are no instances: make them (nvidia-smi mig -cgi … -C), or switch it off"),
        (
            [msgspec.structs.replace(CARD, mig_wanted=True)],
            "MIG mode is off, and on after the next reset: reset the GPU",
        ),
        (
            [msgspec.structs.replace(CUT, mig_wanted=False), part(0)],
            "MIG mode is on, and off after the next reset: reset the GPU",
        ),
        (
            [CUT, part(0, slices=2, used=1)],
            "its compute instance has 1 of the 2 slices of its GPU instance, and is given only with all of them",
        ),
    ],
    ids=["no instances", "on with the next reset", "off with the next reset", "a part of a GPU instance"],
)
def test_what_can_t_be_given_is_told_with_what_to_do(gpus: list[GpuFacts], why: str) -> None:
    """It is in the inventory, sick: nothing of it is offered, and nothing is passed over in silence."""
    (gpu,) = inventory(told(*gpus)).gpus
    assert (gpu.health, gpu.usable) == (Health.SICK, MiB(0))
    assert gpu.reason.startswith(why)


def test_one_that_can_t_be_given_does_not_touch_its_neighbour() -> None:
    """They are instances of one card."""
    found = inventory(told(CUT, part(0, slices=2, used=1), part(1)))
    assert [gpu.health for gpu in found.gpus] == [Health.SICK, Health.HEALTHY]


def test_a_sick_card_makes_all_its_instances_sick_and_no_others() -> None:
    """And they are well again with it; what an operator says of one is of that one."""
    other = msgspec.structs.replace(CUT, uuid="GPU-b", index=1)
    cards = told(CUT, part(0), part(1), other, part(2, card="GPU-b"))
    event = GpuEvent(kind=EventKind.XID, uuid="GPU-a", number=79, at=2.0)
    ill = msgspec.structs.replace(cards, book=heard(cards.book, event, policy=policy(HealthSettings(), names=NAMES)))
    assert [gpu.health for gpu in inventory(ill).gpus] == [Health.SICK, Health.SICK, Health.HEALTHY]
    assert inventory(ill).gpus[0].reason.startswith("its GPU is sick: XID 79")
    marks = Marks(cordoned=frozenset({"MIG-1"}), reasons={"cordoned": "cordoned", "marked": "marked"})
    one = msgspec.structs.replace(cards, book=marked(cards.book, marks, gpus=cards.gpus, now=2.0))
    assert [gpu.health for gpu in inventory(one).gpus] == [Health.HEALTHY, Health.SICK, Health.HEALTHY]


def test_instances_that_were_taken_away_are_gone_and_those_of_a_silent_card_stay() -> None:
    """Who holds one that is there no more holds nothing; of a card that does not answer nothing is known."""
    cards = told(CUT, part(0), part(1))
    assert [gpu.uuid for gpu in inventory(told(CUT, part(0), before=cards)).gpus] == ["MIG-0"]
    assert [gpu.uuid for gpu in inventory(told(CARD, before=cards)).gpus] == ["GPU-a"]
    problem = GpuProblem(fault=Fault.FAILED, uuid="GPU-a", index=0, what="it fails")
    silent = inventory(told(CUT, problems=(problem,), before=cards))
    assert [(gpu.uuid, gpu.health, gpu.reason) for gpu in silent.gpus] == [
        (f"MIG-{number}", Health.SICK, "its GPU is sick: it fails") for number in (0, 1)
    ]
    lost = inventory(told(problems=(msgspec.structs.replace(problem, fault=Fault.LOST),), before=cards))
    assert {gpu.health for gpu in lost.gpus} == {Health.SICK}


def test_a_driver_that_fails_takes_instances_out_too() -> None:
    """As it does with GPUs."""
    found = inventory(failed(told(CUT, part(0)), reason="no answer"))
    assert [(gpu.health, gpu.reason) for gpu in found.gpus] == [(Health.SICK, "no answer")]


def test_hardware_holds_instances_whatever_the_node_was_told() -> None:
    """And cards are held as they were told."""
    offer = by_hardware(lambda _: Offered(modes=("observe", "interposer")))
    assert offer(part(0)).modes == by_hardware(only_observed)(part(0)).modes == ("mig",)
    assert offer(CARD).modes == ("observe", "interposer")


def test_an_instance_has_as_many_ids_as_percent_and_none_for_best_effort() -> None:
    """So the kubelet has no more to give than there is."""
    whole = Gpu(uuid="GPU-c", index=1, model="A100", memory=80_000)
    tables = device_tables(
        Inventory(gpus=(*instances("n1", "3g.40gb", "1g.10gb"), whole)), names=NAMES, best_effort_slots=2
    )
    assert [len(tables[NAMES.compute]), len(tables[NAMES.best_effort])] == [42 + 14 + 100, 2]


def test_the_kubelet_is_advised_of_as_many_ids_as_it_asks_for() -> None:
    """An instance may be more than was asked: the ids still name it."""
    (card,) = instances("n1", "3g.40gb")
    slices = (Slice(gpu=card.uuid, compute=card.compute, limit=card.compute, memory=card.usable),)
    grant = Grant(node="n1", pod="u", containers={"main": ContainerGrant(slices=slices, isolation="mig")})
    pod = with_grant(asks("u", 20, 5_000), grant)
    call = Prefer(call=1, resource=NAMES.compute, available=[], must_include=[], size=20)
    assert agreed(candidates(call, pods=[pod], recorded=(), names=NAMES)) == {card.uuid: 20}


def test_a_process_is_put_to_the_slice_of_its_own_instance() -> None:
    """On its neighbour's it uses a GPU without a grant, though both are of one card."""
    own, other = instances("n1", "1g.10gb", "1g.10gb")
    slices = (Slice(gpu=own.uuid, compute=own.compute, limit=own.compute, memory=own.usable),)
    grant = Grant(node="n1", pod="u", containers={"main": ContainerGrant(slices=slices, isolation="mig")})
    process = GpuProcess(pid=7, memory_mib=512, sm_percent=None, kind=ProcessKind.COMPUTE)
    found = accounts(
        usages=[GpuUsage(uuid=one.uuid, memory_used_mib=512, processes=(process,)) for one in (own, other)],
        dwellings={7: (Dwelling(pod="u", container="main"),)},
        tenants={"u": Tenant(pod=with_grant(asks("u", 5, 1_000), grant), grant=grant)},
        standing={},
    )
    assert [(one.gpu, one.used_mib, one.used_percent) for one in found.slices] == [(own.uuid, 512, None)]
    assert found.strangers == {(other.uuid, Owner.POD): 1}
    assert found.trespassers == ((7, "u", other.uuid),)


def test_labels_say_that_there_are_instances() -> None:
    """For node selectors."""
    assert labels(Inventory(gpus=instances("n1", "1g.10gb")), names=NAMES)[NAMES.of("gpu.mig.capable")] == "true"
    whole = Gpu(uuid="GPU-c", index=1, model="A100", memory=80_000)
    assert labels(Inventory(gpus=(whole,)), names=NAMES)[NAMES.of("gpu.mig.capable")] == "false"


def test_metrics_tell_of_instances_and_of_the_heat_of_their_card() -> None:
    """With the card's uuid, for that is what other exporters name."""
    cards = told(CUT, part(0))
    usages = {"GPU-a": GpuUsage(uuid="GPU-a", memory_used_mib=0, temperature_celsius=61, power_watts=250.0)}
    figures = Figures(
        node="n1",
        version="1",
        inventory=inventory(cards),
        facts=cards.gpus,
        sampled=Sampled(usages=usages),
    )
    found: dict[str, object] = {
        sample.name: (sample.labels, sample.value)
        for family in FiguresCollector(figures).collect()
        for sample in family.samples
    }
    card = {"gpu": "0", "UUID": "GPU-a", "modelName": CARD.model}
    assert found["aliquot_gpu_temperature_celsius"] == (card, 61)
    assert found["aliquot_gpu_power_watts"] == (card, 250.0)
    of = {"gpu": "0", "UUID": "MIG-0", "modelName": CARD.model, "card": "GPU-a", "GPU_I_ID": "7"}
    assert found["aliquot_gpu_instance"] == (of, 1)


@pytest.mark.parametrize(("slices", "percent"), [(1, 14), (2, 28), (3, 42), (4, 57), (7, 100)])
def test_what_an_instance_is_of_its_card_is_rounded_down(slices: int, percent: int) -> None:
    """All of a card together are no more than it."""
    (gpu,) = inventory(told(CUT, part(0, slices=slices))).gpus
    assert gpu.compute == Percent(percent)
