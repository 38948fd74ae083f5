"""What the leader alone knows of the cluster's GPUs, told to those who follow: so that all replicas warn alike.

It lies on the Lease that says how often nodes are to beat. Whatever stands there, reading it gives what can be used: of
what is not understood nothing is known, and what is not known is taken to be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from aliquot_core.inventory import model_names
from aliquot_core.names import Names
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.picture.there import There

# No GPU has more MiB; and of contexts the least and the most are said.
_DIGITS, _WORDS = 9, 2
# Of more models, or longer names, none is told: who knew but some would warn of the others. All agents read the Lease.
MOST_MODELS: Final = 64
_LONGEST = 8 * 1024

_MiB = Annotated[int, msgspec.Meta(ge=0, lt=10**_DIGITS)]
_models = msgspec.json.Decoder(dict[str, _MiB])


def told_there(there: There | None, *, names: Names, settings: AdmissionSettings) -> dict[str, str]:
    """As annotations; empty where nothing is known."""
    return {names.context: _told_contexts(there, settings=settings), names.models: _told_models(there)}


def there_as_told(annotations: Mapping[str, str], *, names: Names) -> There:
    """What the leader says; nothing of what there is otherwise."""
    memory = _read_models(annotations.get(names.models, ""))
    return There(
        models=tuple(memory), memory=lambda: memory, contexts=_read_contexts(annotations.get(names.context, ""))
    )


def _told_contexts(there: There | None, *, settings: AdmissionSettings) -> str:
    if there is None or all(one is None for one in there.contexts):
        return ""
    return " ".join(map(str, sorted(set(there.context_span(otherwise=settings.least_memory)))))


def _read_contexts(text: str) -> tuple[int, ...]:
    # A leader of another version may say anything.
    words = text.split()[:_WORDS]
    return tuple(int(one) for one in words if one.isdecimal() and len(one) <= _DIGITS)


def _told_models(there: There | None) -> str:
    """Each by the name that its driver gives it, of which the others are made, with the largest that can be given."""
    if there is None or not there.models or len(there.models) > MOST_MODELS:
        return ""
    memory = there.memory()
    text = msgspec.json.encode({names[0]: memory.get(names, 0) for names in sorted(there.models)})
    return text.decode() if len(text) <= _LONGEST else ""


def _read_models(text: str) -> dict[tuple[str, ...], int]:
    try:
        told = _models.decode(text) if 0 < len(text) <= _LONGEST else {}
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    return {model_names(model): memory for model, memory in told.items()} if len(told) <= MOST_MODELS else {}
