"""What the page shows, as data: all of it is of one instant, and nothing in it changes any more.

The same structs make the HTML and `/page/state.json`. None is what is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from aliquot_core.inventory import Health
from aliquot_scheduler.queues.telling.forms import QueueRow


class _Shown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Common settings of all that is shown."""


class Stage(StrEnum):
    """How far a pod has come."""

    WAITING = "waiting"
    LET_IN = "let in"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class Owner(_Shown, frozen=True, kw_only=True):
    """The workload that a pod belongs to; a pod that nobody made is its own."""

    namespace: str
    kind: str
    name: str

    @property
    def key(self) -> str:
        """As it stands in an address."""
        return f"{self.namespace}/{self.kind}/{self.name}"


class PodShown(_Shown, frozen=True, kw_only=True):
    """A pod that asks for slices."""

    uid: str
    namespace: str
    name: str
    owner: Owner
    stage: Stage
    phase: str
    queue: str
    node: str
    # In all: percent of GPUs, and MiB.
    compute: int
    memory: int
    created: str

    @property
    def key(self) -> str:
        """As people name it."""
        return f"{self.namespace}/{self.name}"


class SliceShown(_Shown, frozen=True, kw_only=True):
    """A pod's part of one GPU; `whole` says that nobody else may be there."""

    pod: str
    owner: str
    queue: str
    stage: Stage
    compute: int
    memory: int
    whole: bool
    used_compute: int | None = None
    used_memory: int | None = None
    # How far its agent has gone with it, for it uses more than granted; empty if it does not.
    over_use: str = ""
    # How many launches of it passed before they were paid for, since its agent began.
    unpaid_launches: int | None = None
    # Since when its use is known here (seconds since 1970), the most memory since, and what compute mostly kept within.
    used_since: float | None = None
    most_memory: int | None = None
    high_compute: int | None = None


class GpuShown(_Shown, frozen=True, kw_only=True):
    """One GPU: what is granted of it, to whom, and what is used."""

    node: str
    uuid: str
    index: int
    model: str
    health: Health
    reason: str
    isolation: tuple[str, ...]
    # In MiB, as the slices' memory; and what it has of a card's compute.
    size: int
    whole: int = 100
    compute: int
    memory: int
    slices: tuple[SliceShown, ...]
    used_compute: int | None = None
    used_memory: int | None = None


class StrayShown(_Shown, frozen=True, kw_only=True):
    """A pod that is bound without a grant: on no GPU, and others get so much less of its node's.

    Or with one that a `later` version of Aliquot wrote, which says where it lies to that version alone.
    """

    pod: str
    compute: int
    memory: int
    best_effort: int
    later: bool = False


class NodeShown(_Shown, frozen=True, kw_only=True):
    """A node; `out` says why no pod is bound there."""

    name: str
    out: str
    driver: str
    gpus: tuple[GpuShown, ...]
    strays: tuple[StrayShown, ...] = ()


class WaitingShown(_Shown, frozen=True, kw_only=True):
    """Who waits, and why."""

    pod: str
    queue: str
    user: str
    priority: int
    since: str
    compute: int
    memory: int
    reason: str
    why: str


class Totals(_Shown, frozen=True, kw_only=True):
    """Sums over all GPUs that can be used; a GPU is 100 percent."""

    nodes: int = 0
    nodes_out: int = 0
    # Of whom nothing is known just now, as the API server is not heard.
    nodes_unheard: int = 0
    gpus: int = 0
    gpus_sick: int = 0
    compute: int = 0
    compute_granted: int = 0
    compute_used: int | None = None
    memory: int = 0
    memory_granted: int = 0
    memory_used: int | None = None
    running: int = 0
    waiting: int = 0
    # Since this replica began to lead.
    let_in: int = 0
    waited: float = 0.0
    # As the metrics have it; None where it is not known.
    evicted: int | None = None
    evicted_for: Mapping[str, int] = {}
    # What pods hold that are bound without a grant, on no GPU.
    compute_stray: int = 0
    memory_stray: int = 0


class State(_Shown, frozen=True, kw_only=True):
    """Everything at one instant; `paused` says why nothing is decided just now."""

    at: float
    paused: str = ""
    # When use was looked at last; None: it is not known here.
    used_at: float | None = None
    totals: Totals = Totals()
    queues: Sequence[QueueRow] = ()
    nodes: tuple[NodeShown, ...] = ()
    pods: tuple[PodShown, ...] = ()
    waiting: tuple[WaitingShown, ...] = ()
    # How many wait for each reason.
    reasons: Mapping[str, int] = {}


class Sample(_Shown, frozen=True, kw_only=True):
    """One point of the history: parts of all that there is, from 0 to 1, and counts."""

    at: float
    compute_granted: float
    compute_used: float | None
    memory_granted: float
    memory_used: float | None
    waiting: int
    # Mean wait of those who were let in since the sample before; None: nobody was.
    wait: float | None
    evicted: int
    # By what for, where any were.
    evicted_for: Mapping[str, int] = {}
