"""What stands on a pod under our domain and means nothing: most often a slip of the pen.

A resource that no node has is refused, because the pod would wait for it for ever. A label or an annotation is only
warned of: others may write there too, and an older centre must not refuse what a newer one reads.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence

from aliquot_core.counting import listed
from aliquot_core.errors import AliquotError
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import kinds
from aliquot_scheduler.admission.verdict import AdmissionError

# So alike are a name and what was meant by it; at less, two of our own names would be taken for each other.
_ALIKE = 0.75


def unknown_resources(pod: Pod, *, names: Names) -> Iterator[AliquotError]:
    """Resources of our domain that nobody offers."""
    known = names.resources()
    for _, container in kinds(pod):
        asked = {*container.resources.limits, *container.resources.requests}
        for name in sorted(asked.difference(known)):
            if name.startswith(names.of("")):
                yield AdmissionError(
                    "no node has such a resource",
                    where=f"container {container.name}, {name}",
                    remedy=_meant(name, known) or f"there are {listed(known)}",
                )


def unknown_notes(pod: Pod, *, names: Names, labels: Sequence[str], annotations: Sequence[str]) -> Iterator[str]:
    """Warnings of labels and annotations that nobody reads, given those that pods may bear."""
    meta = pod.metadata
    ours = (
        names.grant,
        names.charged,
        names.turn,
        names.promised,
        names.shown,
        names.room,
        names.over_use,
        names.group_run,
    )
    for kind, other, found, known, others in (
        ("label", "annotation", meta.labels, (*labels, names.of("user")), annotations),
        ("annotation", "label", meta.annotations, (*annotations, *ours), labels),
    ):
        for key in sorted(key for key in found if key.startswith(names.of("")) and key not in known):
            meant = f"write it as {other}" if key in others else _meant(key, known)
            yield f"{kind} {key} does nothing" + (f": {meant}" if meant else f": no {kind} of that name is read")


def _meant(name: str, known: Collection[str]) -> str:
    """Compared without the domain, which alone would make all names alike."""
    short = {each.partition("/")[2]: each for each in known}
    close = difflib.get_close_matches(name.partition("/")[2], short, n=1, cutoff=_ALIKE)
    return f"did you mean {short[close[0]]}?" if close else ""
