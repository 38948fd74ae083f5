"""What the webhook says of a pod: every problem, and every warning."""

from __future__ import annotations

from typing import Any

from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.validation import judge
from aliquot_scheduler.picture.there import Models, There
from support.admitting import NAMES, Json, decoded


def problems(pod: Json, *, models: Models = (), **settings: Any) -> list[str]:
    """Every problem as its author reads it."""
    verdict = judge(decoded(pod), names=NAMES, settings=AdmissionSettings(**settings), there=There(models=models))
    return [str(problem) for problem in verdict.problems]


def warnings(pod: Json, *, models: Models = (), there: There | None = None) -> list[str]:
    """What is said of a pod that may come in."""
    known = there or There(models=models)
    verdict = judge(decoded(pod), names=NAMES, settings=AdmissionSettings(), there=known)
    assert verdict.problems == ()
    return list(verdict.warnings)
