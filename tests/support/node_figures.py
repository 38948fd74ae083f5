"""Figures of a node with two GPUs, one of them sick, and two slices: what an agent tells Prometheus."""

from __future__ import annotations

from aliquot_agent.gpus.model import GpuFacts, GpuUsage
from aliquot_agent.health.ailments import Verdict
from aliquot_agent.isolation.allowance import Allowed
from aliquot_agent.isolation.ladder import Rung
from aliquot_agent.web.accounts import Accounts, Owner, SliceUse
from aliquot_agent.web.call_times import PRESTART, Histogram
from aliquot_agent.web.figures import Figures, Sampled
from aliquot_core.claims import Claim
from aliquot_core.door import KubeletSeen
from aliquot_core.inventory import Gpu, Health, Inventory
from aliquot_core.quantities import MiB, Percent
from aliquot_kube.reflector import Freshness

A, B = "GPU-a", "GPU-b"
MIB = 1024 * 1024
ON_A = {"gpu": "0", "UUID": A, "modelName": 'A100 "80"'}
ON_B = {"gpu": "1", "UUID": B, "modelName": 'A100 "80"'}
SLICE = {"namespace": "team", "pod": "p1", "container": "main", "UUID": A}


def facts(uuid: str) -> GpuFacts:
    """What the driver says of a GPU."""
    return GpuFacts(
        uuid=uuid,
        index=0,
        minor=0,
        model="A100",
        memory_total_mib=1000,
        memory_reserved_mib=100,
        compute_capability="8.0",
        architecture="ampere",
        pci_bus_id="x",
    )


FULL = Figures(
    node="n1",
    version="1.2.3",
    inventory=Inventory(
        driver="580.1",
        gpus=(
            Gpu(uuid=A, index=0, model='A100 "80"', memory=900, isolation=["observe", "interposer"]),
            Gpu(uuid=B, index=1, model='A100 "80"', memory=900, health=Health.SICK, reason="XID 48"),
        ),
    ),
    facts={A: facts(A), B: facts(B)},
    verdicts={A: Verdict(since=5.0), B: Verdict(health=Health.SICK, since=7.5)},
    xids={(B, 48): 2, ("", 79): 1},
    sampled=Sampled(
        at=100.0,
        usages={A: GpuUsage(uuid=A, memory_used_mib=300, utilization_percent=57, power_watts=61.5)},
        accounts=Accounts(
            slices=(
                SliceUse(
                    namespace="team", pod="p1", container="main", gpu=A, compute=29, limit=100, memory_mib=256,
                    uid="u1", isolation="interposer", used_percent=12, used_mib=200,
                ),
                SliceUse(namespace="team", pod="p2", container="main", gpu=B, compute=10, limit=10, memory_mib=64),
            ),
            strangers={(A, Owner.HOST): 3},
        ),
        claims={A: (Claim(compute=Percent(29), memory=MiB(256)), 1)},
    ),
    over_use={("u1", "main", A): Rung.WARN},
    allowed={("u1", "main", A): Allowed(memory=220, limit=100)},
    lacks={A: 36},
    unpaid={("u1", "main", A): 4},
    calls={(PRESTART, "ready"): Histogram(counts=[1, 2, *[0] * 12, 1], seconds=40.0)},
    at_door=True,
    kubelet=KubeletSeen(listening=["aliquot.dev/compute"], registrations=4),
    resources=("aliquot.dev/compute", "aliquot.dev/best-effort"),
    mirrors={"pods": Freshness(contact_age=1.5, list_age=9.0, failures=0, synced=True)},
    heartbeat_at=99.0,
)  # fmt: skip
