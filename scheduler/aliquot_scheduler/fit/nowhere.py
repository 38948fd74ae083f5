"""Why a pod fits on no node at all, were each of them empty: the first cause that holds of all nodes together."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from aliquot_core.counting import agreed, counted, listed, none_of
from aliquot_core.isolation import enough
from aliquot_core.names import Names
from aliquot_core.request import PodRequest
from aliquot_scheduler.fit.causes import Causes
from aliquot_scheduler.fit.demand import demand_of, least_memory
from aliquot_scheduler.fit.emptied import Emptied
from aliquot_scheduler.fit.finding import Counts, Part
from aliquot_scheduler.fit.phrases import ALLOWED, Phrases, by_mode, one_mode
from aliquot_scheduler.picture.grid import Bools, Kind
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.picture.there import told_models


def why_nowhere(causes: Causes, *, names: Names) -> str:
    """Of a pod that no node could take."""
    phrases, of_all = Phrases(causes, names=names), Counts(*causes.counts.sum(axis=0).tolist()[: len(Counts._fields)])
    if not of_all.total:
        return "no GPU is there yet that can be given"
    if not of_all.meant:
        return phrases.not_meant(of_all) + _models_there(causes) + _modes_there(causes)
    if not of_all.taking:
        return _by_isolation(of_all, causes, phrases, names=names)
    if not of_all.allowed:
        return _too_thin(causes, phrases, names=names)
    return _too_much(causes) or _of_one_node(causes, phrases)


def nowhere_in(picture: Picture, *, names: Names) -> Callable[[PodRequest], str]:
    """The same of one that asks so, each container by itself; empty where some node could, or none has a GPU yet.

    What its containers take together is not tried: whoever writes a pod waits meanwhile, and so does the leader.
    """

    def nowhere(request: PodRequest) -> str:
        demand, grid = demand_of(request), picture.grid
        causes = Causes(demand, grid=grid, emptied=Emptied(), named=picture.named(request.uuids))
        return "" if not grid.open.any() or causes.able_for_each().any() else why_nowhere(causes, names=names)

    return nowhere


def _too_thin(causes: Causes, phrases: Phrases, *, names: Names) -> str:
    """By what is asked of the GPUs on which a context takes least; in MiB, where it is left to compute."""
    kinds = _kinds(causes, causes.taking)
    kinds = [kind for kind in kinds if not kind.takes_all] or kinds
    least, *more = sorted({kind.context or 0 for kind in kinds})
    those = [kind for kind in kinds if kind.context == least]
    said = phrases.too_thin(f"{least} MiB{' or more' if more else ''} on each GPU {ALLOWED}", those)
    asked = phrases.thin(those)
    if asked.memory or those[0].takes_all:
        return said
    return f"{said}; {least_memory(asked, least=least)} MiB of {names.memory} would do"


def _kinds(causes: Causes, places: Bools) -> list[Kind]:
    return [causes.grid.kinds[number] for number in np.unique(causes.grid.kind[places]).tolist()]


def _models_there(causes: Causes) -> str:
    """Those that it does not name, if it names models."""
    if not (causes.request.models.allowed or causes.request.models.forbidden):
        return ""
    models = (kind.models for kind in _kinds(causes, causes.grid.open))
    return f"; {told_models(models, asked=causes.request.models)}"


def _modes_there(causes: Causes) -> str:
    """Those that are offered, if it asks for one that is not."""
    kinds, least = _kinds(causes, causes.grid.open), causes.request.isolation
    if not least or any(enough(kind.isolation, least=least) for kind in kinds):
        return ""
    return f"; none offers isolation {least}, {_offered(kinds)}: ask for one of these, or have a node offer it"


def _by_isolation(of_all: Counts, causes: Causes, phrases: Phrases, *, names: Names) -> str:
    """No mode that is there takes what it is: what is offered, and what to ask instead."""
    takes, kinds = none_of(of_all.meant, "GPU", one="does not take", none="takes"), _kinds(causes, causes.meant)
    words = phrases.classes(kinds)
    instead = {
        "burstable": f"leave {names.compute_limit} out",
        "best-effort": f"ask for {names.compute}",
        "spread over parts of several": "ask for whole GPUs, or for one",
        "spread over several": "ask for one GPU",
    }
    remedies = ", ".join(what for word, what in instead.items() if word in words.split(" or "))
    return f"by their isolation {takes} what is {words}; {_offered(kinds)}: {remedies}"


def _offered(kinds: Iterable[Kind]) -> str:
    modes = sorted({mode for kind in kinds for mode in kind.isolation})
    return f"there {agreed(len(modes), 'is', 'are')} {listed(modes)}" if modes else "they offer none"


def _too_much(causes: Causes) -> str:
    """What it asks of one GPU that none has, in compute only instances of MIG have too little."""
    memory, compute = (max(getattr(part.piece, axis) for part in causes.parts) for axis in ("memory", "compute"))
    if memory > (largest := causes.grid.usable[causes.allowed].max()):
        return f"it asks {memory} MiB of one GPU, and the largest {ALLOWED} has {largest} MiB"
    if compute > (most := causes.grid.total[causes.allowed].max()):
        return f"it asks {compute} % of one GPU, and the largest instance of MIG {ALLOWED} has {most} %"
    return ""


def _of_one_node(causes: Causes, phrases: Phrases) -> str:
    """What it needs at one time, and no node has."""
    if (most := int(causes.allowed.sum(axis=1).max())) < causes.most:
        return f"it needs {causes.most} GPUs of one node, and no node has more than {most} {ALLOWED}"
    have = {part: causes.large(part.piece).sum(axis=1) >= part.needed for part in causes.parts}
    rows = np.flatnonzero(np.logical_and.reduce(list(have.values())))
    if not rows.size:
        # Each may be there, and no node has all.
        missing = [part for part, there in have.items() if not there.any()] or list(have)
        asked = " and ".join(_asked(part, phrases) for part in missing)
        return f"it needs {asked} of one node, and none has so many"
    if (lack := causes.lack_of_a_mode()) is not None:
        gpus, modes = lack
        return (
            f"it needs {one_mode(gpus)} on one node, and of these no node has more than "
            f"{by_mode(modes, word='or')} that are large enough: "
            "ask for fewer GPUs, or have more GPUs of one node offer the same mode"
        )
    best = max(causes.fills(rows), key=lambda fill: (fill.staying, not fill.stuck))
    if best.staying < causes.staying:
        return f"on no node more than {phrases.so_many(best.staying)} find room"
    return f"on no node its init container {best.stuck} finds room{phrases.no_room_where(best)}"


def _asked(part: Part, phrases: Phrases) -> str:
    gpus = f"{counted(part.needed, 'GPU')} with {phrases.size(part.piece)}"
    return f"{gpus} each" if part.needed > 1 else gpus
