"""How a container is kept inside its slice: the modes, from the one that only watches to the one the hardware holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

from aliquot_core.modes import INTERPOSER, MIG, MODES, MPS, OBSERVE
from aliquot_core.names import Names
from aliquot_core.objects import Pod, PodCondition
from aliquot_core.request import Quality

# Of a GPU that offers none, and in grants of it.
NO_MODE = ""
# The last rung of the ladder for who uses more than granted, as settings, queues and pods write it.
EVICT = "evict"
# Reasons of a pod's condition `granted`: it uses more than it was granted and is to go; it keeps inside again; its
# queue, or its node, does not go so far any more.
OVER_USE, INSIDE, LET_BE = "OverUse", "InsideSlice", "OverUseLetBe"


class Keeping(StrEnum):
    """What becomes of a promise: it is held, it is tried as well as can be, or it is refused."""

    HELD = "held"
    TRIED = "best tried"
    REFUSED = "refused"


# Instances of MIG are of fixed size, so nothing can burst. MPS bounds how wide a client may run, not for how long, and
# each process of a pod by itself. docs/isolation.md has this as a page.
_OF_COMPUTE = {
    OBSERVE: dict.fromkeys(Quality, Keeping.TRIED),
    INTERPOSER: dict.fromkeys(Quality, Keeping.HELD),
    MPS: dict.fromkeys(Quality, Keeping.TRIED),
    MIG: {
        Quality.GUARANTEED: Keeping.HELD,
        Quality.BURSTABLE: Keeping.REFUSED,
        Quality.BEST_EFFORT: Keeping.REFUSED,
    },
}


# What keeps a slice, and what does not: docs/isolation.md has it at length.
_BY_WHAT = {
    OBSERVE: "nothing is enforced: over-use is seen, and answered as its queue says",
    INTERPOSER: (
        "cooperative: every way through the driver's interface is closed, and what goes round it is seen, counts "
        "against the container's memory, and is answered as over-use"
    ),
    MPS: (
        "cooperative: a program may unset its limits, memory is limited for each process by itself, and one program's "
        "fatal fault ends the work of all on the GPU"
    ),
    MIG: "hard: by the GPU's own hardware, faults of others included",
}


def keeping(mode: str, quality: Quality) -> Keeping:
    """What a mode makes of a class's compute; a mode that this version does not know is only trusted to try."""
    return _OF_COMPUTE.get(mode, _OF_COMPUTE[OBSERVE])[quality]


def holds_memory(mode: str) -> bool:
    """Whether a container gets no more memory than its slice has; others are only watched."""
    return mode in {INTERPOSER, MIG}


def promised(mode: str, quality: Quality) -> str:
    """What becomes of a slice's compute and memory, as pods are told it."""
    return f"compute {keeping(mode, quality)}, memory {'held' if holds_memory(mode) else 'only watched'}"


def by_what(mode: str) -> str:
    """What of that is hard and what cooperative; of a mode that this version does not know, that."""
    return _BY_WHAT.get(mode, "how hard is for a later version to say")


def enough(offered: Sequence[str], *, least: str) -> bool:
    """Whether a GPU that offers these modes can hold a pod that asks for this one at the least."""
    return not least or any(_reaches(mode, least) for mode in offered)


def admits(offered: Sequence[str], *, least: str, quality: Quality) -> bool:
    """Whether one of these modes reaches what is asked, and does not refuse the class."""
    return bool(chosen(offered, least=least, quality=quality)) or not (offered or least)


def chosen(offered: Sequence[str], *, least: str, quality: Quality) -> str:
    """The mode in which a slice of that class is held there: the strongest that takes it; empty if none does."""
    able = [mode for mode in offered if _reaches(mode, least) and keeping(mode, quality) is not Keeping.REFUSED]
    return max(able, key=_rank, default="")


def spans(mode: str, *, wholes: Sequence[bool]) -> bool:
    """Whether one container can hold these slices so, each of one GPU and whole or not.

    MPS has a daemon per GPU, and a process speaks to one; who has its GPUs whole needs none. Of MIG's instances CUDA
    opens one to a process. Of a mode that this version does not know nobody says that it reaches over two.
    """
    return len(wholes) == 1 or mode in {NO_MODE, OBSERVE, INTERPOSER} or (mode == MPS and all(wholes))


def shared_modes(*, least: str, wholes: Sequence[bool], qualities: Collection[Quality]) -> tuple[str, ...]:
    """In which of the modes a pod's containers may lie on several GPUs, the strongest first; `NO_MODE` if none need be.

    Empty for a pod each of whose containers lies on one. These are few, whatever agents tell of.
    """
    if len(wholes) == 1:
        return ()
    able = [mode for mode in reversed(MODES) if _reaches(mode, least) and spans(mode, wholes=wholes)]
    able = [mode for mode in able if all(keeping(mode, one) is not Keeping.REFUSED for one in qualities)]
    return (*able, NO_MODE) if not least else tuple(able)


def offers(offered: Sequence[str], mode: str) -> bool:
    """Whether a GPU that offers these modes offers that one; who offers none has `NO_MODE`."""
    return mode in offered if mode else not offered


def _reaches(mode: str, least: str) -> bool:
    """A mode that this version does not know is as strong as itself, and as nothing else."""
    return not least or mode == least or (least in MODES and _rank(mode) >= MODES.index(least))


def _rank(mode: str) -> int:
    return MODES.index(mode) if mode in MODES else -1


def is_over_use(pod: Pod, *, names: Names) -> PodCondition | None:
    """The condition by which a node's agent gives a pod up that uses more than it was granted, if it stands."""
    # Asked of each pod that changes: first by what hardly any condition says.
    given_up = (one for one in pod.status.conditions if one.reason == OVER_USE and one.status == "False")
    return next((one for one in given_up if one.type == names.of("granted")), None)
