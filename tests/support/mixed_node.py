"""One node of mixed GPUs, who holds what of them, and a pod: drawn from a seed, and asked by plain search.

Nothing of the scheduler's is used but what a pod asks for: every way to put its containers on GPUs is tried.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product, takewhile

import msgspec

from aliquot_core.claims import may_start_on
from aliquot_core.inventory import Gpu, Health
from aliquot_core.isolation import admits, enough, spans
from aliquot_core.objects import Node, Pod
from aliquot_core.request import ContainerRequest, Kind, PodRequest, parse_request
from aliquot_core.shares import Share
from support.centre import NAMES, Asked, asks, bound, container, make_node, make_pod
from support.mig import instances

NODE = "n"
MODELS = {80_000: "NVIDIA A100-SXM4-80GB", 24_000: "NVIDIA A10", 16_000: "Tesla T4"}
GATED = {"schedulingGates": [{"name": NAMES.gate}]}
_WHOLE = 100
# A container's GPUs, by their columns.
_Way = Sequence[int]


@dataclass
class Spot:
    """One GPU: what is left of it, who is on it."""

    gpu: Gpu
    compute: int
    memory: int
    holders: int = 0
    closed: bool = False

    def has(self, share: Share) -> bool:
        """Whether so much of it is free."""
        return self.has_compute(share.compute.value) and self.memory >= memory_on(self.gpu, share)

    def has_compute(self, compute: int) -> bool:
        """Of compute alone; a whole one is nobody's."""
        return not self.closed and self.compute >= compute and not (compute == _WHOLE and self.holders)

    def could(self, share: Share) -> bool:
        """Whether it is large enough."""
        return self.gpu.compute.value >= share.compute.value and self.gpu.memory >= memory_on(self.gpu, share)


@dataclass
class Scene:
    """What was drawn."""

    cards: list[Gpu]
    held: dict[str, tuple[int, int]]
    pod: Pod
    request: PodRequest
    spots: list[Spot] = field(default_factory=list)

    def __post_init__(self) -> None:
        for gpu in self.cards:
            compute, memory = self.held.get(gpu.uuid, (0, 0))
            on, closed = int(gpu.uuid in self.held), compute == _WHOLE
            left = gpu.compute.value - compute, gpu.usable.value - memory
            self.spots.append(Spot(gpu=gpu, compute=left[0], memory=left[1], holders=on, closed=closed))

    def node(self) -> Node:
        """With nothing against it but its GPUs."""
        return make_node(NODE, self.cards)

    def holders(self) -> list[Pod]:
        """Those who hold it."""
        return [
            bound(asks(f"h{uuid}", compute or None, memory), node=NODE, held={uuid: (compute, memory)})
            for uuid, (compute, memory) in self.held.items()
        ]

    # --- which GPUs it may have --------------------------------------------------------------------------------------
    @property
    def there(self) -> list[Spot]:
        """Those that can be given."""
        return [one for one in self.spots if one.gpu.health is not Health.SICK and not one.gpu.mig]

    @property
    def meant(self) -> list[Spot]:
        """Those that its annotations allow."""
        asked = self.request
        return [
            one
            for one in self.there
            if asked.models.admits(*one.gpu.model_names)
            and asked.uuids.admits(one.gpu.uuid)
            and enough(one.gpu.isolation, least=asked.isolation)
        ]

    @property
    def taking(self) -> list[Spot]:
        """Those of them whose isolation takes all of its containers."""
        return [one for one in self.meant if not self.refused(one.gpu)]

    @property
    def allowed(self) -> list[Spot]:
        """Those of them on which a context leaves each container something."""
        return [one for one in self.taking if not any(thin(it, one.gpu) for it in self.containers)]

    @property
    def containers(self) -> Sequence[ContainerRequest]:
        """That ask."""
        return self.request.containers

    @property
    def at_once(self) -> bool:
        """Whether several hold slices at the same time."""
        staying = [one for one in self.containers if one.kind is not Kind.INIT]
        return len(staying) > 1 or any(one.kind is Kind.SIDECAR for one in self.containers)

    def refused(self, gpu: Gpu) -> set[str]:
        """What of the pod its isolation does not take."""
        wholes = self.request.wholes
        modes = [mode for mode in gpu.isolation if spans(mode, wholes=wholes)]
        if gpu.isolation and not (modes and enough(modes, least=self.request.isolation)):
            return {"spread over several" if all(wholes) else "spread over parts of several"}
        least = self.request.isolation
        return {one for one in self.request.qualities if not admits(modes, least=least, quality=one)}

    # --- whether it fits ---------------------------------------------------------------------------------------------
    def fits(self, *, emptied: bool, only: Sequence[ContainerRequest] | None = None, inside: bool = True) -> bool:
        """Whether there is a way, with all who hold it or with nobody; of `only` those that stay.

        `inside`: init containers lie on their app containers' GPUs, and more only where they need more.
        """
        spots = [fresh(one) for one in self.allowed] if emptied else self.allowed
        some = self.containers if only is None else only
        staying = [one for one in some if one.kind is not Kind.INIT]
        inits = [one for one in some if one.kind is Kind.INIT]
        return any(
            all(any(self._starts(init, way, laid, inside=inside) for way in self._ways(init, spots)) for init in inits)
            for laid in self._laid(staying, spots)
        )

    def _laid(self, staying: Sequence[ContainerRequest], spots: list[Spot]) -> Iterator[_Laid]:
        for chosen in product(*(list(self._ways(one, spots)) for one in staying)):
            pairs = list(zip(staying, chosen, strict=True))
            if held_at_once(pairs, spots):
                yield _Laid(spots=spots, ways={one.name: way for one, way in pairs})

    def _ways(self, one: ContainerRequest, spots: list[Spot]) -> Iterator[_Way]:
        return ways(one, spots, asked=self.request)

    def _starts(self, init: ContainerRequest, way: _Way, laid: _Laid, *, inside: bool) -> bool:
        before = list(takewhile(lambda one: one.name != init.name, self.containers))
        beside = [(one, laid.ways[one.name]) for one in before if one.kind is Kind.SIDECAR and one.name in laid.ways]
        if not held_at_once([*beside, (init, way)], laid.spots):
            return False
        apps = {at for one in self.containers if one.kind is Kind.APP for at in laid.ways.get(one.name, ())}
        return not inside or may_start_on({*way}, apps=apps)


@dataclass
class _Laid:
    spots: list[Spot]
    ways: Mapping[str, _Way]


def fresh(spot: Spot) -> Spot:
    """The same GPU with nobody on it."""
    return Spot(gpu=spot.gpu, compute=spot.gpu.compute.value, memory=spot.gpu.usable.value)


def memory_on(gpu: Gpu, share: Share) -> int:
    """MiB that it takes of that GPU."""
    if share.memory is not None:
        return share.memory.value
    return max(1, gpu.usable.value * share.compute.value // _WHOLE)


def thin(one: ContainerRequest, gpu: Gpu) -> bool:
    """Whether a context leaves it nothing of what it asks of that GPU, where it asks least; an instance is all its."""
    if not gpu.context:
        return False
    if gpu.instance:
        return gpu.memory < gpu.context
    return memory_on(gpu, one.shares[-1]) < gpu.context


def ways(one: ContainerRequest, spots: list[Spot], *, asked: PodRequest) -> Iterator[_Way]:
    """All ways to put it on GPUs by itself: on several in a mode that each of them offers."""
    shares = one.shares
    for way in permutations(range(len(spots)), len(shares)):
        if all(spots[at].has(share) for at, share in zip(way, shares, strict=True)) and (
            len(way) == 1 or shared([spots[at].gpu for at in way], asked=asked)
        ):
            yield way


def shared(gpus: Sequence[Gpu], *, asked: PodRequest) -> set[str]:
    """The modes that all of these offer, reach as far as the pod asks, and over several GPUs."""
    every = set(gpus[0].isolation).intersection(*(gpu.isolation for gpu in gpus))
    return {mode for mode in every if spans(mode, wholes=asked.wholes) and enough([mode], least=asked.isolation)}


def held_at_once(pairs: Sequence[tuple[ContainerRequest, _Way]], spots: list[Spot]) -> bool:
    """Whether no GPU is over-drawn by all of them."""
    on: dict[int, list[Share]] = {}
    for one, way in pairs:
        for share, at in zip(one.shares, way, strict=True):
            on.setdefault(at, []).append(share)
    return all(
        all(spots[at].has(share) for share in shares)
        and sum(share.compute.value for share in shares) <= spots[at].compute
        and sum(memory_on(spots[at].gpu, share) for share in shares) <= spots[at].memory
        and (len(shares) == 1 or not (spots[at].gpu.instance or any(one.compute.value == _WHOLE for one in shares)))
        for at, shares in on.items()
    )


# --- drawn -----------------------------------------------------------------------------------------------------------
def drawn(seed: int, *, apart: bool = False) -> Scene:
    """The scene of a seed; with `apart` each of its GPUs offers modes of its own."""
    chance = random.Random(seed)
    cards = _cards(chance)
    held = {gpu.uuid: _held(chance, gpu) for gpu in cards if gpu.health is not Health.SICK and chance.random() < 0.6}
    # Of some seeds, so that the others still draw what they drew.
    pod = _inits(chance, cards) if seed % 7 == 6 else _pod(chance, cards)
    if apart:
        cards = [
            one if one.instance else msgspec.structs.replace(one, isolation=chance.choice(_OFFERS)) for one in cards
        ]
    return Scene(cards=cards, held=held, pod=pod, request=parse_request(pod, names=NAMES))


_OFFERS = (["observe"], ["observe", "interposer"], ["mps"], ["mps"], ["observe", "mps"], ["interposer"])


def _cards(chance: random.Random) -> list[Gpu]:
    modes, context = chance.choice([["observe"], ["observe", "interposer"]]), chance.choice((None, None, 512, 900))
    cards: list[Gpu] = []
    for index in range(chance.choice((1, 2, 3, 3, 4))):
        uuid, memory = f"GPU-{NODE}-{index}", chance.choice((80_000, 80_000, 24_000, 16_000))
        mine = chance.choice((["mps"], ["observe", "mps"], modes)) if chance.random() < 0.15 else modes
        card = Gpu(uuid=uuid, index=index, model=MODELS[memory], memory=memory, isolation=mine, context=context)
        match chance.random():
            case luck if luck < 0.08:
                cards.append(msgspec.structs.replace(card, health=Health.SICK, reason="XID 79"))
            case luck if luck < 0.14:
                cards.append(msgspec.structs.replace(card, mig=True))
            case luck if luck < 0.20:
                cards.append(msgspec.structs.replace(card, health=Health.DEGRADED))
            case luck if luck < 0.24:
                cards.append(msgspec.structs.replace(card, context=2_000))
            case luck if luck < 0.32:
                cut = chance.sample(["1g.10gb", "2g.20gb", "3g.40gb"], chance.randint(1, 2))
                cards += [msgspec.structs.replace(one, context=context) for one in instances(NODE, *cut, card=index)]
            case _:
                cards.append(card)
    return cards


def _held(chance: random.Random, gpu: Gpu) -> tuple[int, int]:
    if gpu.instance:
        return gpu.compute.value, gpu.memory
    compute = chance.choice((0, 20, 50, 80, 100))
    return compute, chance.choice((1_000, gpu.memory // 2, gpu.memory - 500))


_COMPUTES = (10, 30, 50, 60, 100)
_MEMORIES = (None, 400, 700, 8_000, 15_000, 15_000, 20_000, 30_000, 60_000, 90_000)


def _pod(chance: random.Random, cards: Sequence[Gpu]) -> Pod:
    match chance.randrange(4):
        case 0:
            return asks("p", *_one(chance), annotations=_notes(chance, cards), spec=GATED)
        case 1:
            return _spread(chance, cards)
        case 2:
            apps = [container(f"c{at}", _one(chance)) for at in range(chance.randint(2, 3))]
            if chance.random() < 0.3:
                apps[0] = container("c0", (chance.choice((150, 200)), chance.choice((None, 30_000, 50_000))))
            return make_pod("p", *apps, annotations=_notes(chance, cards), spec=GATED)
        case _:
            inits = [container(f"i{at}", _one(chance), **_stays(chance)) for at in range(chance.randint(1, 2))]
            main = container("main", _one(chance))
            return make_pod("p", main, inits=inits, annotations=_notes(chance, cards), spec=GATED)


def _stays(chance: random.Random) -> dict[str, str]:
    return {"restartPolicy": "Always"} if chance.random() < 0.4 else {}


def _inits(chance: random.Random, cards: Sequence[Gpu]) -> Pod:
    """With init containers over several GPUs, or beside an app container over several."""
    names = ("main", "i0", "i1")[: chance.randint(2, 3)]
    main, *inits = (container(name, _maybe_several(chance)) for name in names)
    return make_pod("p", main, inits=inits, annotations=_notes(chance, cards), spec=GATED)


def _maybe_several(chance: random.Random) -> Asked:
    """Of one GPU, or of several: an init container may need more of them than its app container has, or others."""
    if chance.random() < 0.45:
        return chance.choice((120, 130, 150, 200, 250)), chance.choice((None, 3_000, 25_000, 50_000))
    return _one(chance)


def _one(chance: random.Random) -> Asked:
    if chance.random() < 0.15:
        return None, chance.choice(_MEMORIES[1:])
    return chance.choice(_COMPUTES), chance.choice(_MEMORIES)


def _spread(chance: random.Random, cards: Sequence[Gpu]) -> Pod:
    """Over several GPUs: whole ones first, or evenly."""
    notes = _notes(chance, cards)
    memory = chance.choice((None, 1_200, 25_000, 50_000, 100_000, 150_000))
    if chance.random() < 0.6:
        return asks("p", chance.choice((130, 150, 200, 250, 250, 320)), memory, annotations=notes, spec=GATED)
    count = chance.randint(2, 3)
    notes |= {NAMES.gpus: str(count)}
    return asks("p", chance.choice((50, 99, 100 * count)), memory, annotations=notes, spec=GATED)


def _notes(chance: random.Random, cards: Sequence[Gpu]) -> dict[str, str]:
    notes = {}
    if chance.random() < 0.15:
        notes[NAMES.gpu_model] = chance.choice(("A100*", "!A10", "T4,A10", "H100"))
    if chance.random() < 0.15:
        notes[NAMES.gpu_uuid] = chance.choice(cards).uuid + chance.choice(("", f",GPU-{NODE}-1"))
    if chance.random() < 0.1:
        notes[NAMES.isolation] = chance.choice(("observe", "interposer", "mps"))
    if chance.random() < 0.1:
        notes[NAMES.placement] = chance.choice(("spread", "pack"))
    return notes
