"""What there is of what pods name: models of GPUs, GPUs by their uuids, nodes. So that a slip of the pen is told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from aliquot_core.counting import listed
from aliquot_core.patterns import Patterns
from aliquot_scheduler.picture.picture import Picture

# Each model by all its names (Gpu.model_names).
Models = Collection[tuple[str, ...]]


def _unknown(_: Patterns) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class There:
    """As far as it is known; what is not known is taken to be there."""

    models: Models = ()
    # Whether any GPU has such a uuid.
    has_gpu: Callable[[Patterns], bool] = _unknown
    nodes: Collection[str] | None = None
    # What a CUDA context takes, in MiB, by kind of GPU; None where the node's agent does not say.
    contexts: Collection[int | None] = ()

    def least_context(self, *, otherwise: int) -> int:
        """What it takes where it takes least; `otherwise` is for GPUs of which it is not said, and if there is none."""
        return min((otherwise if one is None else one for one in self.contexts), default=otherwise)


def listed_models(models: Iterable[tuple[str, ...]]) -> str:
    """Each as an annotation writes it: its last name, without the maker's and without spaces."""
    return listed(sorted({aliases[-1] for aliases in models if aliases}))


def there_in(picture: Picture) -> There:
    """What a picture shows."""
    kinds = picture.grid.kinds

    def has_gpu(uuids: Patterns) -> bool:
        named = picture.named(uuids)
        return named is None or bool(named.any())

    return There(
        models=tuple(dict.fromkeys(kind.models for kind in kinds)),
        has_gpu=has_gpu,
        nodes=picture.nodes.keys(),
        contexts={kind.context for kind in kinds},
    )
