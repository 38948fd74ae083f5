"""What a start is decided on, and what may be decided."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot_agent.isolation.gpu_modes import Seat
from aliquot_agent.pods.standing import Standing
from aliquot_agent.starting.kubelet_view import Listed, Recorded
from aliquot_core.claims import Claim
from aliquot_core.grant import ContainerGrant
from aliquot_core.inventory import Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """All that the decision rests on, gathered at one instant."""

    node: str
    names: Names
    inventory: Inventory
    pods: Mapping[str, Pod]
    recorded: tuple[Recorded, ...] | None
    listed: tuple[Listed, ...] = ()
    standing: Mapping[str, Standing] = {}
    record_problem: str = ""
    # Whether `pods` are all: an agent that starts does not know yet who else is here.
    complete: bool = True
    # Of `standing`, pods that are gone and of which nothing lives, but something may come within seconds.
    coming: frozenset[str] = frozenset()
    # Whether `standing` has what agents before this one gave.
    remembered: bool = True
    # By uuid, how the GPUs stand that are shared by MPS.
    seats: Mapping[str, Seat] = {}


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """One CDI spec to be written: under this full name, this container's slices."""

    cdi_name: str
    container: str
    grant: ContainerGrant


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The container may start once these specs are written."""

    pod: Pod
    specs: tuple[Spec, ...]
    claims: dict[str, Claim]


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Not yet: what is missing may still come."""

    reason: str


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """Not so: somebody has to mend something first."""

    reason: str
    pod: Pod | None = None


Decision = Start | Wait | Refuse
