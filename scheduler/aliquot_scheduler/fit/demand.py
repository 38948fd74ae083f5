"""What a pod asks of a node's GPUs, made ready for the question where it fits.

Most pods have one container that asks, maybe with init containers that run before it on the same GPUs. What those hold
of each GPU at the most is known without placing anything (`pieces`), and the question can be asked of all GPUs at once.
Where several containers hold slices at the same time they may share a GPU or not, which has to be tried out node by
node: `pieces` is then None.

Pieces are in falling order, and each is at least as large as the next in compute and in memory: so a GPU that takes one
takes all that follow, and a node can take them if, for each, enough of its GPUs take it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

import msgspec

from aliquot_core.claims import Claim
from aliquot_core.inventory import Gpu
from aliquot_core.isolation import admits, enough, spans
from aliquot_core.quantities import WHOLE, MiB, Percent
from aliquot_core.request import ContainerRequest, Kind, PodRequest
from aliquot_core.shares import Share
from aliquot_scheduler.picture.grid import Kind as GpuKind


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of one GPU; `portion` is how many percent of the card's memory it must be, where that is meant."""

    compute: int
    memory: int = 0
    portion: int = 0

    @property
    def whole(self) -> bool:
        """Whether nobody else may be on the GPU."""
        return self.compute == WHOLE.value

    def memory_on(self, usable: int) -> int:
        """MiB of a card that has so many; as `shares.memory_of` counts."""
        return max(self.memory, max(1, usable * self.portion // WHOLE.value) if self.portion else 0)

    def claim_on(self, gpu: Gpu) -> Claim:
        """What it takes of a GPU, as its grant will say: of an instance of MIG all there is."""
        if gpu.instance:
            return Claim(compute=gpu.compute, memory=gpu.usable, closes=gpu.compute == WHOLE)
        memory = self.memory_on(gpu.usable.value)
        return Claim(compute=Percent(self.compute), memory=MiB(memory), closes=self.whole)


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's request, and its pieces if they are known without trying."""

    request: PodRequest
    pieces: tuple[Piece, ...] | None


def demand_of(request: PodRequest) -> Demand:
    """Make a request ready."""
    return Demand(request=request, pieces=_pieces(request.containers))


def of_anybody(request: PodRequest) -> PodRequest:
    """All that matters of where a pod fits: whose it is does not."""
    return msgspec.structs.replace(request, queue="", group=None, preemptible=True)


def suits(kind: GpuKind, request: PodRequest) -> bool:
    """Whether a GPU of this kind is one that the pod allows, and that allows the pod, however much room it has.

    A GPU that refuses one of the pod's classes takes none of its containers: they may have to lie on one.
    """
    return admitted(kind, request) and not any(has_no_context(one, kind) for one in request.containers)


def admitted(kind: GpuKind, request: PodRequest) -> bool:
    """The same whatever it asks of the GPU's memory: by model and isolation."""
    return named(kind, request) and not refused(kind, request)


def has_no_context(container: ContainerRequest, kind: GpuKind) -> bool:
    """Whether it would have less of a GPU's memory than a CUDA context takes; of an instance of MIG it has all."""
    if not kind.context:
        return False
    if kind.cut or kind.takes_all:
        return kind.takes_all
    # Most have one GPU, and this is asked at each decision: only who has several is divided, the least comes last.
    several = container.gpus is not None or container.compute.value > WHOLE.value
    least = container.shares[-1] if several else container
    return least.compute.value < kind.context_share if least.memory is None else least.memory.value < kind.context


def least_memory(asked: ContainerRequest, *, least: int) -> int:
    """The smallest memory of which every GPU of the slice gets so much."""
    if asked.gpus:
        return asked.gpus * least
    smallest = min(share.compute.value for share in asked.shares)
    # Each GPU's part is rounded up, so one MiB more than the part below will do.
    return (least - 1) * asked.compute.value // smallest + 1 if smallest else least


def refused(kind: GpuKind, request: PodRequest) -> frozenset[str]:
    """What of the pod no isolation takes that a GPU of this kind offers, in words."""
    wholes = request.wholes
    offered = [mode for mode in kind.isolation if spans(mode, wholes=wholes)]
    if kind.isolation and not (offered and enough(offered, least=request.isolation)):
        return frozenset({"spread over several" if all(wholes) else "spread over parts of several"})
    return frozenset(
        quality for quality in request.qualities if not admits(offered, least=request.isolation, quality=quality)
    )


def named(kind: GpuKind, request: PodRequest) -> bool:
    """Whether the pod's annotations allow a GPU of this kind."""
    return request.models.admits(*kind.models) and enough(kind.isolation, least=request.isolation)


def _pieces(containers: tuple[ContainerRequest, ...]) -> tuple[Piece, ...] | None:
    steady = [one for one in containers if one.kind is not Kind.INIT]
    if len(steady) > 1 or any(one.kind is Kind.SIDECAR for one in containers):
        return None
    laid = [pieces_of(one) for one in containers]
    if steady and len(laid) > 1:
        own, inits = pieces_of(steady[0]), [pieces_of(one) for one in containers if one.kind is Kind.INIT]
        if all(_within(init, own) for init in inits):
            return own
        # Over several GPUs the most of each need not meet: an init container that asks more may lie on another one.
        if max(map(len, laid)) > 1:
            return None
    return tuple(_most(column) for column in zip_longest(*laid))


def _within(init: Sequence[Piece], own: Sequence[Piece]) -> bool:
    """Whether it asks no more, piece for piece, and so lies wherever its app container does."""
    return len(init) <= len(own) and all(
        less.compute <= more.compute and less.memory <= more.memory and less.portion <= more.portion
        for less, more in zip(init, own, strict=False)
    )


def pieces_of(container: ContainerRequest) -> tuple[Piece, ...]:
    """What one container asks, by itself."""
    return tuple(_piece(share) for share in container.shares)


def in_order(request: PodRequest) -> list[ContainerRequest]:
    """The containers that stay, in the order in which they are laid: the largest first."""
    return _largest_first(one for one in request.containers if one.kind is not Kind.INIT)


def before_all(request: PodRequest) -> Iterator[tuple[ContainerRequest, list[ContainerRequest]]]:
    """Each init container, and what is held while it runs: itself and the sidecars before it, the largest first."""
    sidecars: list[ContainerRequest] = []
    for one in request.containers:
        if one.kind is Kind.SIDECAR:
            sidecars.append(one)
        elif one.kind is Kind.INIT:
            yield one, _largest_first([*sidecars, one])


def _largest_first(containers: Iterable[ContainerRequest]) -> list[ContainerRequest]:
    return sorted(
        containers, key=lambda one: (-one.shares[0].compute.value, -(one.memory.value if one.memory else 0), one.name)
    )


def _piece(share: Share) -> Piece:
    if share.memory is None:
        return Piece(compute=share.compute.value, portion=share.compute.value)
    return Piece(compute=share.compute.value, memory=share.memory.value)


def _most(pieces: tuple[Piece | None, ...]) -> Piece:
    """One after the other on the same GPU: the most of each."""
    there = [piece for piece in pieces if piece is not None]
    return Piece(
        compute=max(piece.compute for piece in there),
        memory=max(piece.memory for piece in there),
        portion=max(piece.portion for piece in there),
    )
