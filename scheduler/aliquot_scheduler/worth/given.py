"""A mix as settings give it, for a cluster whose requests are known: new, or filled again after it was emptied."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from aliquot_core.patterns import PatternError, parse_patterns
from aliquot_scheduler.worth.mix import MOST_SHAPES, Cores, Gpus, Mix, Part, Shape


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of request: how common it is beside the others, and what it asks."""

    share: Annotated[float, msgspec.Meta(gt=0, le=1e9)]
    cores: Cores = 0.0
    # Percent of each of its GPUs; memory left out is as much.
    compute: Part = 0
    memory: Part | None = None
    gpus: Gpus = 0
    # As pods write it: `A100*,!A100-PCIE*`.
    models: str = ""

    def __post_init__(self) -> None:
        """Refuse what no pod can ask."""
        try:
            size = self.shape.size
        except PatternError as error:
            raise ValueError(str(error)) from None
        if bool(self.gpus) != bool(size):
            raise ValueError("a request has both `gpus` and a part of them (`compute` or `memory`), or neither")

    @property
    def shape(self) -> Shape:
        """What it asks, as placement tells requests apart."""
        return Shape(
            cores=self.cores,
            compute=self.compute,
            memory=self.compute if self.memory is None else self.memory,
            gpus=self.gpus,
            models=parse_patterns(self.models, where="models"),
        )


class PlacementSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[placement]`."""

    # Empty: what is asked for is learnt from what arrives.
    mix: Annotated[tuple[Request, ...], msgspec.Meta(max_length=MOST_SHAPES)] = ()

    @property
    def given(self) -> Mix | None:
        """The mix that settings give, if they do."""
        counts: dict[Shape, float] = {}
        for one in self.mix:
            counts[one.shape] = counts.get(one.shape, 0.0) + one.share
        return Mix.of(counts) if counts else None


def as_settings(mix: Mix) -> str:
    """The mix as a settings file says it, the commonest first."""
    entries = (
        "\n".join(["[[placement.mix]]", *(f"{name} = {_json(value)}" for name, value in entry.items())])
        for entry in _entries(mix)
    )
    return "\n\n".join(entries)


def as_variable(mix: Mix) -> str:
    """The same as the variable `ALIQUOT_PLACEMENT_MIX` says it."""
    return _json(_entries(mix))


def _entries(mix: Mix) -> list[dict[str, Any]]:
    return [_entry(shape, share) for shape, share in zip(mix.shapes, mix.shares, strict=True)]


def _entry(shape: Shape, share: float) -> dict[str, Any]:
    entry: dict[str, Any] = {"share": float(f"{share:.6g}"), "cores": shape.cores}
    if shape.gpus:
        entry |= {"gpus": shape.gpus, "compute": shape.compute, "memory": shape.memory}
    if models := [*shape.models.allowed, *(f"!{pattern}" for pattern in shape.models.forbidden)]:
        entry["models"] = ",".join(models)
    return entry


def _json(value: Any) -> str:
    """Numbers and texts are written alike in JSON and in TOML."""
    return msgspec.json.encode(value).decode()
