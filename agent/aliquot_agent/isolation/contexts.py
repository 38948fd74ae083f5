"""What a CUDA context takes of each GPU: as its node was told, for models differ. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from aliquot_agent.gpus.model import GpuFacts
from aliquot_agent.isolation.offering import told_of
from aliquot_core.settings import UnusableValueError

# In MiB; no context takes more, of any GPU that there is.
MOST = 16_384
_LINE = re.compile(r"\S.*=([0-9]{1,5})")
_MEASURE = "measure it (nvidia-smi beside an idle program)"

# What a context takes of a GPU, in MiB; None where nobody says.
ContextOf = Callable[[GpuFacts], int | None]


def check_context(mib: int) -> None:
    """Refuse nothing at all: what no slice is charged for, its GPU lacks all the same."""
    if not mib:
        raise UnusableValueError("every CUDA context takes memory, and 0 would charge nobody for it", remedy=_MEASURE)


def check_contexts(lines: Sequence[str]) -> None:
    """Refuse what is no line of the table, as settings do."""
    for line in lines:
        found = _LINE.fullmatch(line)
        if not found or int(found[1]) > MOST:
            raise UnusableValueError(
                f"{line[:80]!r} is no line of the table",
                remedy=f"write lines such as *T4*=300, 0=512 or GPU-4a1b*=600, in MiB and at most {MOST}",
            )
        check_context(int(found[1]))


def context_of(gpu: GpuFacts, *, lines: Sequence[str], otherwise: int) -> int:
    """What its node was told of this GPU, or of all."""
    return int(told_of(gpu, lines=lines, otherwise=str(otherwise)))
