"""On which GPUs of one node each container of a pod lies.

Containers that hold slices at the same time are laid first, the largest first, each on the GPUs where it costs least;
one that needs several GPUs gets those that reach each other best, of those that offer one isolation mode together. Init
containers then get their app containers' GPUs, as the kubelet hands their ids on, and more only where they need more.
Where one finds no room so, other ways are tried (`ways`). What is found is checked once more by the very rules by which
the agent will check the grant: `claims` and `overdrawn`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, combinations, takewhile

import msgspec

from aliquot_core.claims import Claim, claims, overdrawn
from aliquot_core.grant import ContainerGrant, Grant, Slice
from aliquot_core.inventory import Gpu
from aliquot_core.isolation import chosen, spans
from aliquot_core.objects import Pod
from aliquot_core.quantities import WHOLE
from aliquot_core.request import ContainerRequest, Kind, PodRequest
from aliquot_core.request_notes import Placement
from aliquot_core.shares import Share, memory_of
from aliquot_scheduler.fit.card import Card
from aliquot_scheduler.fit.demand import Demand, Piece, in_order, pieces_of
from aliquot_scheduler.fit.links import closeness
from aliquot_scheduler.fit.modes import hands, modes_of
from aliquot_scheduler.fit.ways import Steps, ways

# Looked at of a pod for one node once it does not fit in the usual ways: 0.5 ms of the leader's. Further where nobody
# is on it: what is said of it holds for all that are like it, and nobody could go for more room. 12 containers that
# fill four GPUs to the last percent were found in 33 of 35 draws, and with 32 in 28 of 51.
_MOST_STEPS, _MOST_STEPS_EMPTY = 32, 200


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A grant as it would be written, what it takes of each GPU, and what it costs."""

    grant: Grant
    claims: dict[str, Claim]
    cost: float


Laid = dict[str, Sequence[Card]]


def lay_out(pod: Pod, demand: Demand, *, node: str, cards: Sequence[Card]) -> Plan | None:
    """Lay the pod on these GPUs, or say that it can't be done."""
    request = demand.request
    if demand.pieces is None:
        tries = (_one_by_one(request, cards=some) for some in _hands(request, cards=cards))
        laid_so = chain(tries, _apart(request, cards), in_any_way(request, cards, _steps(request, cards)))
        plans = (_plan(pod, request, node=node, laid=laid) for laid in laid_so if laid)
        return next((plan for plan in plans if plan), None)
    found = _choose(demand.pieces, cards=cards, request=request)
    return _plan(pod, request, node=node, laid=_each_on(found, request)) if found else None


def _steps(request: PodRequest, cards: Sequence[Card]) -> Steps:
    """How far to look; who lies on several GPUs, or names them, is tried on each node by itself."""
    alone = all(len(one.shares) == 1 for one in request.containers)
    named = request.uuids.allowed or request.uuids.forbidden
    empty = alone and not named and not any(card.holders for card in cards)
    return Steps(_MOST_STEPS_EMPTY if empty else _MOST_STEPS)


def _each_on(cards: Sequence[Card], request: PodRequest) -> Laid:
    return {one.name: cards[: len(one.shares)] for one in request.containers}


def _hands(request: PodRequest, *, cards: Sequence[Card]) -> Iterator[Sequence[Card]]:
    """All GPUs; then each alone, the fullest first.

    Laid one by one, an app container takes the GPU that suits itself, and there its init container may find no room.
    """
    yield [card.untouched() for card in cards]
    init = any(one.kind is Kind.INIT for one in request.containers)
    if init and all(len(one.shares) == 1 for one in request.containers):
        pieces = [piece for one in request.containers for piece in pieces_of(one)]
        able = [card for card in cards if all(card.takes(piece) for piece in pieces)]
        for card in sorted(able, key=lambda card: (-card.held.memory.value, card.gpu.index)):
            yield [card.untouched()]


def _apart(request: PodRequest, cards: Sequence[Card]) -> Iterator[Laid | None]:
    """Sidecars first, and app containers only where each init container has room beside those that run on before it.

    Beside a sidecar on one GPU an app container may have room, and its init container none.
    """
    kinds = {one.kind for one in request.containers}
    if {Kind.INIT, Kind.SIDECAR} <= kinds:
        yield _one_by_one(request, cards=[card.untouched() for card in cards], apart=True)


def _one_by_one(request: PodRequest, *, cards: Sequence[Card], apart: bool = False) -> Laid | None:
    """Containers that stay, the largest first; then init containers in their own order."""
    laid: Laid = {}
    staying = in_order(request)
    for container in sorted(staying, key=lambda one: one.kind is Kind.APP) if apart else staying:
        pieces = pieces_of(container)
        some = _startable(request, laid, cards) if apart and container.kind is Kind.APP else cards
        found = _choose(pieces, cards=some, request=request)
        if found is None:
            return None
        for card, piece in zip(found, pieces, strict=True):
            card.give(piece)
        laid[container.name] = found
    return _started(laid, request, cards)


def in_any_way(request: PodRequest, cards: Sequence[Card], steps: Steps) -> Iterator[Laid | None]:
    """Those that stay in whatever way there is, as far as the steps go, and init containers beside them.

    Laid one by one, the largest takes the GPU that suits it best, and another may have room nowhere else.
    """
    staying = in_order(request)
    for way in ways([pieces_of(one) for one in staying], cards, steps, modes=modes_of(request)):
        yield _started({one.name: some for one, some in zip(staying, way, strict=True)}, request, cards)


def _started(laid: Laid, request: PodRequest, cards: Sequence[Card]) -> Laid | None:
    """With the init containers, if each has room beside those that stay."""
    laid = dict(laid)
    for container in (one for one in request.containers if one.kind is Kind.INIT):
        found = _for_init(container, laid=laid, request=request, cards=cards)
        if found is None:
            return None
        laid[container.name] = found
    return laid


def _for_init(
    container: ContainerRequest, *, laid: Laid, request: PodRequest, cards: Sequence[Card]
) -> Sequence[Card] | None:
    """Beside the sidecars that started before it: on its app containers' GPUs, or on all of those and more."""
    fresh = _when_it_runs(container, laid=laid, request=request, cards=cards)
    apps = [one.name for one in request.containers if one.kind is Kind.APP]
    theirs = list(dict.fromkeys(card.gpu.uuid for name in apps for card in laid[name]))
    inside = [fresh[uuid] for uuid in theirs] or list(fresh.values())
    outside = [card for card in fresh.values() if card not in inside]
    pieces = pieces_of(container)
    if len(pieces) <= len(inside):
        return _choose(pieces, cards=inside, request=request)
    first = _on_all(inside, pieces, placement=request.placement)
    rest = [piece for number, piece in enumerate(pieces) if number not in first]
    if len(first) < len(inside):
        return None
    for own in hands([*inside, *outside], modes_of(request)):
        if set(inside) <= set(own):
            more = _choose(rest, cards=[card for card in own if card in outside], request=request)
            if more is not None:
                found = iter(more)
                return [first.get(number) or next(found) for number in range(len(pieces))]
    return None


def _on_all(cards: Sequence[Card], pieces: Sequence[Piece], *, placement: Placement) -> dict[int, Card]:
    """By number, which of these pieces lie on these GPUs: on each the largest for which there is one left.

    So the least is left for others: a GPU that takes a piece takes all that follow.
    """
    laid: dict[int, Card] = {}
    for number, piece in enumerate(pieces):
        if able := [card for card in cards if card not in laid.values() and card.takes(piece)]:
            laid[number] = min(able, key=lambda card: (card.cost(piece, placement), card.gpu.index))
    return laid


def _when_it_runs(init: ContainerRequest, *, laid: Laid, request: PodRequest, cards: Sequence[Card]) -> dict[str, Card]:
    """The GPUs by uuid, with the sidecars that have started before it."""
    fresh = {card.gpu.uuid: card.untouched() for card in cards}
    for before in takewhile(lambda other: other.name != init.name, request.containers):
        if before.kind is Kind.SIDECAR:
            for card, piece in zip(laid[before.name], pieces_of(before), strict=True):
                fresh[card.gpu.uuid].give(piece)
    return fresh


def _startable(request: PodRequest, laid: Laid, cards: Sequence[Card]) -> Sequence[Card]:
    """The GPUs on which each init container that needs one has room."""
    able = list(cards)
    for init in (one for one in request.containers if one.kind is Kind.INIT and len(one.shares) == 1):
        fresh, (piece,) = _when_it_runs(init, laid=laid, request=request, cards=cards), pieces_of(init)
        able = [card for card in able if fresh[card.gpu.uuid].takes(piece)]
    return able


def _choose(pieces: Sequence[Piece], *, cards: Sequence[Card], request: PodRequest) -> Sequence[Card] | None:
    """A GPU for each piece, no GPU twice, and several in one mode; pieces come in falling order."""
    if not pieces:
        return ()
    placement = request.placement
    if len(pieces) == 1:
        able = [card for card in cards if card.takes(pieces[0])]
        return [min(able, key=lambda card: (card.cost(pieces[0], placement), card.gpu.index))] if able else None
    tries = [
        _grow(seed, pieces, cards=own, placement=placement)
        for own in hands(cards, modes_of(request))
        for seed in own
        if seed.takes(pieces[0])
    ]
    found = [one for one in tries if one is not None]
    return max(found, key=lambda one: _merit(one, pieces, placement)) if found else None


def _grow(seed: Card, pieces: Sequence[Piece], *, cards: Sequence[Card], placement: Placement) -> Sequence[Card] | None:
    """From one GPU on, always add the one that reaches the others best."""
    taken = [seed]
    for piece in pieces[1:]:
        able = [card for card in cards if card not in taken and card.takes(piece)]
        if not able:
            return None
        taken.append(max(able, key=partial(_next, beside=tuple(taken), piece=piece, placement=placement)))
    return taken


def _next(card: Card, *, beside: Sequence[Card], piece: Piece, placement: Placement) -> tuple[float, float, int]:
    """How good a GPU is as the next one."""
    near = sum(closeness(card.gpu, other.gpu) for other in beside)
    return near, -card.cost(piece, placement), -card.gpu.index


def _merit(cards: Sequence[Card], pieces: Sequence[Piece], placement: Placement) -> tuple[float, float]:
    """How good a choice of several GPUs is: first by how they reach each other, then by what it costs."""
    near = sum(closeness(one.gpu, other.gpu) for one, other in combinations(cards, 2))
    return near, -sum(card.cost(piece, placement) for card, piece in zip(cards, pieces, strict=True))


def _plan(pod: Pod, request: PodRequest, *, node: str, laid: Laid) -> Plan | None:
    containers = {one.name: _granted(one, laid[one.name], request) for one in request.containers}
    if any(not one.isolation and (request.isolation or _offer_some(laid[name])) for name, one in containers.items()):
        # Its agent would not take such a grant, as it takes none in a mode that a GPU does not offer.
        return None
    grant = Grant(node=node, pod=pod.metadata.uid, containers=containers)
    wanted = claims(pod, grant)
    cards = {card.gpu.uuid: card for found in laid.values() for card in found}
    for uuid, claim in wanted.items():
        card = cards[uuid]
        held, gpu = card.held.beside(claim), card.gpu
        if overdrawn(held, memory=gpu.usable, holders=card.holders + 1, compute=gpu.compute):
            return None
    return Plan(grant=grant, claims=wanted, cost=_cost(wanted, cards=cards, placement=request.placement))


def _granted(container: ContainerRequest, cards: Sequence[Card], request: PodRequest) -> ContainerGrant:
    wholes = [share.compute == WHOLE for share in container.shares]
    offered = [
        mode
        for mode in cards[0].gpu.isolation
        if spans(mode, wholes=wholes) and all(mode in card.gpu.isolation for card in cards)
    ]
    mode = chosen(offered, least=request.isolation, quality=container.quality)
    slices = tuple(_slice(card.gpu, share) for card, share in zip(cards, container.shares, strict=True))
    return ContainerGrant(slices=slices, isolation=mode)


def _offer_some(cards: Sequence[Card]) -> bool:
    return any(card.gpu.isolation for card in cards)


def _slice(gpu: Gpu, share: Share) -> Slice:
    if gpu.instance:
        return Slice(gpu=gpu.uuid, compute=gpu.compute, limit=gpu.compute, memory=gpu.usable)
    memory = memory_of(share.compute, card=gpu.usable) if share.memory is None else share.memory
    return Slice(gpu=gpu.uuid, compute=share.compute, limit=share.limit, memory=memory)


def _cost(wanted: Mapping[str, Claim], *, cards: Mapping[str, Card], placement: Placement) -> float:
    """The mean over its GPUs, each by what is left of it afterwards."""
    costs = [
        Card(gpu=cards[uuid].gpu, held=cards[uuid].held, holders=0).cost(
            Piece(compute=claim.compute.value, memory=claim.memory.value), placement
        )
        for uuid, claim in wanted.items()
    ]
    return sum(costs) / len(costs)
