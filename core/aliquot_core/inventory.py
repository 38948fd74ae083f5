"""What a node publishes of its GPUs: one annotation, written only when its content changes.

The scheduler places by it and the agent checks grants by it, so both read it with the same decoder. It passes over what
a later agent says beside what it knows: the two are not upgraded at one instant. What changes the meaning of something
that is said already is another version.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from aliquot_core.errors import ClusterError
from aliquot_core.modes import OBSERVE
from aliquot_core.quantities import LARGEST, NO_MEMORY, WHOLE, MiB, Percent

VERSION = 1
# 16 GPUs that all name each other take 18 kB; Kubernetes allows 256 KiB for all annotations of a node.
LARGEST_TEXT = 128 * 1024
# 16 GPUs cut into seven instances each are 112. As many columns has every node in the centre's picture as one has GPUs.
MOST_GPUS = 256

# The `problem` of an agent that has only just started.
NOT_ASKED = "the driver was not asked yet"

_MAKER = "NVIDIA"
_REMEDY = "only the node's agent writes inventories: restart it, and look for who else did"


class InventoryError(ClusterError):
    """An inventory that can't be read."""

    def __init__(self, what: str, *, where: str = "inventory", remedy: str = _REMEDY) -> None:
        super().__init__(what, where=where, remedy=remedy)


class Health(StrEnum):
    """Whether a GPU may be given away."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    SICK = "sick"


def model_names(model: str) -> tuple[str, ...]:
    """The model as the driver, the node's label and people write it; a pattern may mean any of them."""
    short = model.removeprefix(f"{_MAKER} ")
    return tuple(dict.fromkeys((model, model.replace(" ", "-"), short, short.replace(" ", "-"))))


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a GPU of the inventory an instance of MIG: a part of a card, given whole to one container."""

    # The card's uuid, and the driver's numbers of the GPU instance and of the compute instance that fills it.
    parent: str
    gpu_instance: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
    compute_instance: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
    # Percent of the card's compute, rounded down: what it counts for where percent are counted.
    compute: Annotated[int, msgspec.Meta(ge=1, le=WHOLE.value)]


class Gpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU, or one instance of it, as the scheduler sees it; `memory` is what can be granted, in MiB."""

    uuid: str
    index: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
    model: str
    memory: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
    capability: str = ""
    pci: str = ""
    # The number in /dev/nvidia<minor>; it may differ from the index.
    minor: int | None = None
    numa: int | None = None
    # In MIG mode, and nothing of it can be given: what can is listed by instance, and not the card.
    mig: bool = False
    instance: Instance | None = None
    # How this GPU reaches the others of its node, by uuid: "NV12", "PIX", "SYS" and so on.
    links: dict[str, str] = {}
    health: Health = Health.HEALTHY
    reason: str = ""
    # Degraded for what is the matter with the card, which it keeps whoever computes on it; heat comes with who does.
    failing: bool = False
    # Made anew by a function, as `v` below: msgspec then always writes it, and equal inventories are equal texts.
    isolation: list[str] = msgspec.field(default_factory=lambda: [OBSERVE])
    # Why it offers less isolation than its node was told to.
    isolation_lack: str = ""
    # MiB that a CUDA context takes of it, before a program has asked for anything; earlier agents do not say.
    context: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None = None

    @property
    def usable(self) -> MiB:
        """What can be granted of its memory."""
        return MiB(self.memory) if self.health is not Health.SICK else NO_MEMORY

    @property
    def takes_all(self) -> bool:
        """Whether a CUDA context takes all of its memory, so that no slice of it is of use."""
        return bool(self.context and self.memory) and (self.context or 0) >= self.memory

    @property
    def compute(self) -> Percent:
        """What there is of its compute, in percent of a card."""
        return Percent(self.instance.compute) if self.instance else WHOLE

    @property
    def model_names(self) -> tuple[str, ...]:
        """As a pattern may mean it."""
        return model_names(self.model)


class Inventory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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

    def context(self, uuid: str) -> int:
        """What a CUDA context takes of that GPU, in MiB; nothing where it is not told."""
        gpu = self.gpu(uuid)
        return gpu.context or 0 if gpu else 0

    @property
    def memory(self) -> MiB:
        """What the node has to grant, for its `aliquot.dev/memory`."""
        return MiB(sum(gpu.usable.value for gpu in self.gpus))


class _Version(msgspec.Struct, frozen=True):
    v: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]


_version = msgspec.json.Decoder(_Version)
_inventory = msgspec.json.Decoder(Inventory)


def encode_inventory(inventory: Inventory) -> str:
    """The annotation's value: the same inventory always gives the same text."""
    return msgspec.json.encode(inventory, order="deterministic").decode()


def decode_inventory(text: str) -> Inventory:
    """Read an annotation's value, refusing what can't be understood."""
    if len(text) > LARGEST_TEXT:
        raise InventoryError(f"{len(text)} characters are more than {LARGEST_TEXT}")
    try:
        if (version := _version.decode(text).v) != VERSION:
            raise InventoryError(
                f"version {version} is not understood, only {VERSION}",
                remedy="bring the scheduler to the version of this node's agent",
            )
        inventory = _inventory.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InventoryError(f"not readable: {error}") from None
    _check(inventory)
    return inventory


def _check(inventory: Inventory) -> None:
    if len(inventory.gpus) > MOST_GPUS:
        raise InventoryError(f"names {len(inventory.gpus)} GPUs, and a node has {MOST_GPUS} at the most")
    if len({gpu.uuid for gpu in inventory.gpus}) != len(inventory.gpus):
        raise InventoryError("names a GPU twice")
    if not all(gpu.uuid for gpu in inventory.gpus):
        raise InventoryError("names a GPU without a uuid")
