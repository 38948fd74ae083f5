"""All that the metrics tell, as it was at one instant: made on the loop from what is known, read by any thread."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot_agent.gpus.model import GpuFacts, GpuUsage
from aliquot_agent.health.ailments import Verdict
from aliquot_agent.isolation.allowance import Allowed
from aliquot_agent.isolation.beyond import Whose
from aliquot_agent.isolation.gpu_modes import Seat
from aliquot_agent.isolation.ladder import Rung
from aliquot_agent.starting.drift import Drift
from aliquot_agent.web.accounts import Accounts
from aliquot_agent.web.call_times import Histogram
from aliquot_core.claims import Claim
from aliquot_core.door import KubeletSeen
from aliquot_core.inventory import Inventory
from aliquot_kube.reflector import Freshness


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at every few seconds."""

    at: float | None = None
    usages: Mapping[str, GpuUsage] = {}
    accounts: Accounts = Accounts()
    # By GPU, all claims together and of how many pods; None: who holds what is not known.
    claims: Mapping[str, tuple[Claim, int]] | None = None
    # What runs here and should not, or not so; None: not known.
    drifts: frozenset[Drift] | None = None
    # GPUs that are shared by MPS.
    seats: Mapping[str, Seat] = {}


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Everything; None and what is left out is not known."""

    node: str
    version: str
    inventory: Inventory = Inventory()
    facts: Mapping[str, GpuFacts] = {}
    verdicts: Mapping[str, Verdict] = {}
    # The driver's trouble in one word; empty if it works.
    trouble: str = ""
    xids: Mapping[tuple[str, int], int] = {}
    sampled: Sampled = Sampled()
    # How high slices stand on the ladder, by pod (its UID), container and GPU.
    over_use: Mapping[Whose, Rung] = {}
    # What slices may have now; and by GPU, how many MiB that are granted are not there.
    allowed: Mapping[Whose, Allowed] = {}
    lacks: Mapping[str, int] = {}
    # How many launches of slices passed unpaid; of those that are not paced nothing is said.
    unpaid: Mapping[Whose, int] = {}
    # How often the pacing of a GPU failed, by the kind of fault.
    pacing_faults: Mapping[str, int] = {}
    calls: Mapping[tuple[str, str], Histogram] = {}
    at_door: bool = False
    kubelet: KubeletSeen | None = None
    resources: tuple[str, ...] = ()
    mirrors: Mapping[str, Freshness] = {}
    heartbeat_at: float | None = None
