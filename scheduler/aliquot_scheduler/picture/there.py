"""What there is of what pods name: models of GPUs, GPUs by their uuids, nodes. So that a slip of the pen is told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from aliquot_core.counting import listed
from aliquot_core.patterns import Patterns
from aliquot_core.request import PodRequest
from aliquot_scheduler.picture.picture import Picture

# Each model by all its names (Gpu.model_names).
Models = Collection[tuple[str, ...]]


def _unknown(_: Patterns) -> bool:
    return True


def _somewhere(_: PodRequest) -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class There:
    """As far as it is known; what is not known is taken to be there."""

    models: Models = ()
    # Whether any GPU has such a uuid.
    has_gpu: Callable[[Patterns], bool] = _unknown
    nodes: Collection[str] | None = None
    # MiB of the largest GPU of each model that can be given.
    memory: Callable[[], Mapping[tuple[str, ...], int]] = dict
    # What a CUDA context takes, in MiB, by kind of GPU; None where the node's agent does not say. Of GPUs of which it
    # takes all, nothing is said: an operator mistook that number, and no author of a pod can help it.
    contexts: Collection[int | None] = ()
    # Why no node has GPUs for a container that asks so, even if it were empty; empty if one has.
    nowhere: Callable[[PodRequest], str] = _somewhere

    def largest(self, models: Patterns) -> int:
        """MiB of the largest GPU of such models that can be given; 0 where there is none."""
        return max((most for names, most in self.memory().items() if models.admits(*names)), default=0)

    def context_span(self, *, otherwise: int) -> tuple[int, int]:
        """What it takes where it takes least, and most; `otherwise` is for GPUs that do not say, or if none is."""
        taken = [otherwise if one is None else one for one in self.contexts] or [otherwise]
        return min(taken), max(taken)


def told_models(models: Iterable[tuple[str, ...]], *, asked: Patterns) -> str:
    """Each as an annotation writes it: its last name, without the maker's and without spaces.

    And how to write what was asked, where that is a part of such a name: `T4` names no Tesla-T4.
    """
    names = sorted({aliases[-1] for aliases in models if aliases})
    meant = {_part(name, word) for name in names for word in asked.allowed if word in name.casefold()}
    hint = f"; for a part of a name write {listed(sorted(f'*{part}*' for part in meant))}" if meant else ""
    return f"there are {listed(names)}{hint}"


def _part(name: str, word: str) -> str:
    """The word as the name writes it."""
    start = name.casefold().index(word)
    return name[start : start + len(word)]


def there_in(picture: Picture) -> There:
    """What a picture shows."""
    grid, kinds = picture.grid, picture.grid.kinds

    def has_gpu(uuids: Patterns) -> bool:
        named = picture.named(uuids)
        return named is None or bool(named.any())

    def memory() -> dict[tuple[str, ...], int]:
        most = np.zeros(len(kinds), dtype=np.int64)
        np.maximum.at(most, grid.kind[grid.open], grid.usable[grid.open])
        found: dict[tuple[str, ...], int] = {}
        for kind, largest in zip(kinds, most.tolist(), strict=True):
            if not kind.takes_all:
                found[kind.models] = max(largest, found.get(kind.models, 0))
        return found

    return There(
        models=tuple(dict.fromkeys(kind.models for kind in kinds)),
        has_gpu=has_gpu,
        nodes=picture.nodes.keys(),
        memory=memory,
        contexts={kind.context for kind in kinds if not kind.takes_all},
    )
