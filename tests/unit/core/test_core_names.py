"""Every name comes from the domain."""

from __future__ import annotations

import inspect

import pytest

from aliquot_core.names import LONGEST_DOMAIN, DomainError, Names

PROPERTIES = [name for name, value in inspect.getmembers(Names) if isinstance(value, property)]

CONTRACT = {
    "compute": "aliquot.dev/compute",
    "memory": "aliquot.dev/memory",
    "best_effort": "aliquot.dev/best-effort",
    "gpus": "aliquot.dev/gpus",
    "gpu_model": "aliquot.dev/gpu-model",
    "gpu_uuid": "aliquot.dev/gpu-uuid",
    "placement": "aliquot.dev/placement",
    "compute_limit": "aliquot.dev/compute-limit",
    "compute_now": "aliquot.dev/compute-now",
    "memory_now": "aliquot.dev/memory-now",
    "preemptible": "aliquot.dev/preemptible",
    "isolation": "aliquot.dev/isolation",
    "use": "aliquot.dev/use",
    "queue": "aliquot.dev/queue",
    "group": "aliquot.dev/group",
    "group_size": "aliquot.dev/group-size",
    "group_min": "aliquot.dev/group-min",
    "group_topology": "aliquot.dev/group-topology",
    "group_run": "aliquot.dev/group-run",
    "gate": "aliquot.dev/queue",
    "grant": "aliquot.dev/grant",
    "over_use": "aliquot.dev/over-use",
    "inventory": "aliquot.dev/inventory",
    "degraded_gpus": "aliquot.dev/degraded-gpus",
    "cordoned_gpus": "aliquot.dev/cordoned-gpus",
    "clear_health": "aliquot.dev/clear-health",
    "address": "aliquot.dev/address",
    "heartbeat_interval": "aliquot.dev/heartbeat-interval",
    "settings": "aliquot.dev/settings",
}


@pytest.mark.parametrize("name", CONTRACT)
def test_names_are_those_of_the_contract(name: str) -> None:
    """Users and measurements hold on to them."""
    assert getattr(Names(), name) == CONTRACT[name]


@pytest.mark.parametrize("name", PROPERTIES)
def test_no_name_keeps_the_old_domain(name: str) -> None:
    """A fork changes one setting and nothing else."""
    other = getattr(Names(domain="gpu.example.org"), name)
    assert other == getattr(Names(), name).replace("aliquot.dev", "gpu.example.org")
    assert other.partition("/")[0] in {"gpu.example.org", "sim.gpu.example.org"}


def test_all_names_differ() -> None:
    """A label, an annotation and a resource of one name would be taken for each other; a gate is none of these."""
    names = [name for name in PROPERTIES if name != "gate"]
    assert len({getattr(Names(), name) for name in names}) == len(names)


def test_cdi_names_and_leases_are_made_from_what_they_stand_for() -> None:
    """One CDI device per token, one Lease per node."""
    assert Names(domain="gpu.example.org").cdi_name("t0") == "gpu.example.org/slice=t0"
    assert Names().lease("n1") == "node-n1"


@pytest.mark.parametrize(("length", "lease"), [(248, "node-" + "n" * 248), (249, "n" * 249), (253, "n" * 253)])
def test_every_node_s_name_leaves_room_for_its_lease(length: int, lease: str) -> None:
    """A name may have 253 characters, a node's and a lease's alike."""
    assert Names().lease("n" * length) == lease


@pytest.mark.parametrize("domain", ["a.b", "aliquot.dev", "gpu-1.example.org", "a." + "b" * (LONGEST_DOMAIN - 2)])
def test_a_dns_name_is_a_domain(domain: str) -> None:
    """With at least one dot, as Kubernetes asks of extended resources."""
    assert Names(domain=domain).compute == f"{domain}/compute"


@pytest.mark.parametrize(
    "domain",
    [
        *("", "aliquot", "Aliquot.dev", "aliquot..dev", ".aliquot.dev", "aliquot.dev.", "-a.dev", "a-.dev"),
        *("a_b.dev", "a b.dev", "a.dev\n", "1a.dev", "é.dev", "a.dev/x", "a." + "b" * (LONGEST_DOMAIN - 1)),
        "a" * 100_000,
    ],
)
def test_what_kubernetes_or_cdi_would_not_take_is_refused(domain: str) -> None:
    """At start, not when the first pod comes; quickly and shortly said, too."""
    with pytest.raises(DomainError) as caught:
        Names(domain=domain)
    assert caught.value.where == "setting names.domain"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("namespace", ["", "Aliquot", "a.b", "-a", "a-", "a" * 64, "a\n"])
def test_what_no_namespace_can_be_called_is_refused(namespace: str) -> None:
    """Leases and service accounts live there."""
    with pytest.raises(DomainError, match=r"setting names\.namespace"):
        Names(namespace=namespace)


@pytest.mark.parametrize("namespace", ["a", "aliquot-system", "7", "a" * 63])
def test_a_label_of_dns_is_a_namespace(namespace: str) -> None:
    """As Kubernetes has it."""
    assert Names(namespace=namespace).namespace == namespace
