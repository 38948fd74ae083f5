"""Why a pod fits on no node at all, were each of them empty: the first cause that holds of all nodes together."""

from __future__ import annotations

import numpy as np

from aliquot_core.counting import counted, none_of
from aliquot_core.names import Names
from aliquot_scheduler.fit.causes import Causes, Counts, Part
from aliquot_scheduler.fit.phrases import ALLOWED, Phrases
from aliquot_scheduler.picture.grid import Bools, Kind
from aliquot_scheduler.picture.there import listed_models


def why_nowhere(causes: Causes, *, names: Names) -> str:
    """Of a pod that no node could take."""
    phrases, of_all = Phrases(causes, names=names), Counts(*causes.counts.sum(axis=0).tolist()[: len(Counts._fields)])
    if not of_all.total:
        return "no GPU is there yet that can be given"
    if not of_all.meant:
        return phrases.not_meant(of_all) + _models_there(causes)
    if not of_all.taking:
        takes = none_of(of_all.meant, "GPU", one="does not take", none="takes")
        return f"by their isolation {takes} what is {phrases.classes(_kinds(causes, causes.meant))}"
    if not of_all.allowed:
        kinds = _kinds(causes, causes.taking)
        least, *more = sorted({kind.context or 0 for kind in kinds})
        context = f"{least} MiB{' or more' if more else ''} on each GPU {ALLOWED}"
        return phrases.too_thin(context, [kind for kind in kinds if kind.context == least])
    return _too_much(causes) or _of_one_node(causes, phrases)


def _kinds(causes: Causes, places: Bools) -> list[Kind]:
    return [causes.grid.kinds[number] for number in np.unique(causes.grid.kind[places]).tolist()]


def _models_there(causes: Causes) -> str:
    """Those that it does not name, if it names models."""
    if not (causes.request.models.allowed or causes.request.models.forbidden):
        return ""
    return f"; there are {listed_models(kind.models for kind in _kinds(causes, causes.grid.open))}"


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
    best = max(causes.fills(rows), key=lambda fill: (fill.staying, not fill.stuck))
    if best.staying < causes.staying:
        return f"on no node more than {phrases.so_many(best.staying)} find room"
    return f"on no node its init container {best.stuck} finds room{phrases.no_room_where(best)}"


def _asked(part: Part, phrases: Phrases) -> str:
    gpus = f"{counted(part.needed, 'GPU')} with {phrases.size(part.piece)}"
    return f"{gpus} each" if part.needed > 1 else gpus
