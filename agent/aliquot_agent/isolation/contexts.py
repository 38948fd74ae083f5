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

# What a context takes of a GPU, in MiB; None where nobody says.
ContextOf = Callable[[GpuFacts], int | None]


def check_contexts(lines: Sequence[str]) -> None:
    """Refuse what is no line of the table, as settings do."""
    for line in lines:
        found = _LINE.fullmatch(line)
        if not found or int(found[1]) > MOST:
            raise UnusableValueError(
                f"{line[:80]!r} is no line of the table",
                remedy=f"write lines such as *T4*=300, 0=512 or GPU-4a1b*=600, in MiB and at most {MOST}",
            )


def context_of(gpu: GpuFacts, *, lines: Sequence[str], otherwise: int) -> int:
    """What its node was told of this GPU, or of all."""
    return int(told_of(gpu, lines=lines, otherwise=str(otherwise)))
