"""What a node publishes of its GPUs: one annotation, written only when its content changes.

The scheduler places by it and the agent checks grants by it, so both read it with the same strict decoder.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from aliquot_core.errors import ClusterError
from aliquot_core.quantities import NO_MEMORY, MiB

VERSION = 1
# The isolation that every GPU has: use is measured, nothing is held back.
OBSERVE = "observe"


class InventoryError(ClusterError):
    """An inventory that can't be read."""


class Health(StrEnum):
    """Whether a GPU may be given away."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    SICK = "sick"


class Gpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One GPU as the scheduler sees it; `memory` is what can be granted, in MiB."""

    uuid: str
    index: int
    model: str
    memory: int
    capability: str = ""
    pci: str = ""
    # The number in /dev/nvidia<minor>; it may differ from the index.
    minor: int | None = None
    numa: int | None = None
    mig: bool = False
    # How this GPU reaches the others of its node, by uuid: "NV12", "PIX", "SYS" and so on.
    links: dict[str, str] = {}
    health: Health = Health.HEALTHY
    reason: str = ""
    # Made anew by a function, as `v` below: msgspec then always writes it, and equal inventories are equal texts.
    isolation: list[str] = msgspec.field(default_factory=lambda: [OBSERVE])

    @property
    def usable(self) -> MiB:
        """What can be granted of its memory."""
        return MiB(self.memory) if self.health is not Health.SICK else NO_MEMORY


class Inventory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A node's GPUs; `problem` says why there are none that can be given."""

    # Always written: left out as a default, it would be read as whatever version the reader has.
    v: int = msgspec.field(default_factory=lambda: VERSION)
    driver: str = ""
    cuda: str = ""
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""

    def gpu(self, uuid: str) -> Gpu | None:
        """The GPU of that uuid."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)

    @property
    def memory(self) -> MiB:
        """What the node has to grant, for its `aliquot.dev/memory`."""
        return MiB(sum(gpu.usable.value for gpu in self.gpus))


class _Version(msgspec.Struct, frozen=True):
    v: int


_version = msgspec.json.Decoder(_Version)
_inventory = msgspec.json.Decoder(Inventory)


def encode_inventory(inventory: Inventory) -> str:
    """The annotation's value: the same inventory always gives the same text."""
    return msgspec.json.encode(inventory, order="deterministic").decode()


def decode_inventory(text: str) -> Inventory:
    """Read an annotation's value."""
    try:
        if (version := _version.decode(text).v) != VERSION:
            raise InventoryError(
                f"version {version} is not understood, only {VERSION}",
                where="inventory",
                remedy="bring the scheduler to the version of this node's agent",
            )
        return _inventory.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InventoryError(f"not readable: {error}", where="inventory") from None
