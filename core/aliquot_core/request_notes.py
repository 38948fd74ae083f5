"""What single annotations of a request say, each refusal with what to write instead."""

from __future__ import annotations

import re
from enum import StrEnum

from aliquot_core.counting import listed
from aliquot_core.modes import MODES
from aliquot_core.objects import Pod
from aliquot_core.patterns import Patterns, parse_patterns
from aliquot_core.quantities import QUOTED
from aliquot_core.request_rules import MOST_GPUS, RequestError, count_of

_MODE = re.compile(r"[a-z][a-z0-9-]{0,39}")


class Placement(StrEnum):
    """Where the author wants the pod: wherever it is best, close to others, or away from them."""

    BEST = ""
    PACK = "pack"
    SPREAD = "spread"


def note(name: str) -> str:
    """Where something is wrong that an annotation says."""
    return f"annotation {name}"


def gpus_of(pod: Pod, name: str) -> int | None:
    """Over how many GPUs compute is divided."""
    gpus = count_of(pod.metadata.annotations.get(name), where=note(name), unit="GPUs")
    if gpus is not None and gpus > MOST_GPUS:
        raise RequestError(f"{gpus} GPUs are more than {MOST_GPUS}", where=note(name), remedy=f"write 1 to {MOST_GPUS}")
    return gpus


def patterns_of(pod: Pod, name: str) -> Patterns:
    """Which GPUs are allowed or forbidden."""
    return parse_patterns(pod.metadata.annotations.get(name, ""), where=note(name))


def placement_of(pod: Pod, name: str) -> Placement:
    """Where it is to lie."""
    text = pod.metadata.annotations.get(name)
    if text is None:
        return Placement.BEST
    if text not in {Placement.PACK, Placement.SPREAD}:
        raise RequestError(f"{text[:QUOTED]!r} is unknown", where=note(name), remedy="write pack or spread")
    return Placement(text)


def yes_or_no(pod: Pod, name: str) -> bool:
    """Yes where nothing is written."""
    text = pod.metadata.annotations.get(name, "true")
    if text not in {"true", "false"}:
        raise RequestError(f"{text[:QUOTED]!r} is unknown", where=note(name), remedy='write "true" or "false"')
    return text == "true"


def mode_of(pod: Pod, name: str) -> str:
    """Which modes there are is said by the inventories; what can't be one is refused here."""
    text = pod.metadata.annotations.get(name, "")
    if text and not _MODE.fullmatch(text):
        raise RequestError(
            f"{text[:QUOTED]!r} is no mode of isolation",
            where=note(name),
            remedy=f"write one of {listed(MODES)}, or leave it out",
        )
    return text
