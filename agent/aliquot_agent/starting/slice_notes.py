"""What a pod is told once its slice is ready: what each container holds, and how hard it is held. Pure."""

from __future__ import annotations

from aliquot_agent.starting.decision import Spec, Start
from aliquot_core.grant import Slice
from aliquot_core.isolation import promised
from aliquot_core.request import Quality, quality_of

REASON = "SliceReady"


def ready_note(start: Start) -> str:
    """One sentence for each container."""
    return "; ".join(_of_container(spec) for spec in start.specs)


def _of_container(spec: Spec) -> str:
    grant = spec.grant
    quality = quality_of(compute=grant.compute, limit=grant.limit)
    parts = ", ".join(_of_slice(part, quality) for part in grant.slices)
    mode = grant.isolation or "unknown"
    return f"{spec.container}: {parts}; isolation {mode}: {promised(mode, quality)}"


def _of_slice(part: Slice, quality: Quality) -> str:
    compute = "idle compute" if quality is Quality.BEST_EFFORT else str(part.compute)
    burst = f" up to {part.limit}" if part.limit > part.compute else ""
    return f"{compute}{burst} and {part.memory} of {part.gpu}"
