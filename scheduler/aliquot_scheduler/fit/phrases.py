"""What sentences about nodes and their GPUs are made of: of one node that refuses a pod, and of all that do."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from aliquot_core.counting import agreed, counted, none_of, some_of
from aliquot_core.names import Names
from aliquot_core.quantities import WHOLE
from aliquot_core.request import ContainerRequest
from aliquot_core.request import Kind as Role
from aliquot_scheduler.fit.causes import Causes
from aliquot_scheduler.fit.demand import Piece, has_no_context, refused
from aliquot_scheduler.fit.emptied import Fill
from aliquot_scheduler.fit.finding import Counts, Finding, OfModes
from aliquot_scheduler.picture.grid import Kind

# Of GPUs that are left when those that a pod's annotations forbid are not counted, and of those that it may have.
MEANT, ALLOWED = "that the pod allows", "that it may have"


class Phrases:
    """Of one pod."""

    def __init__(self, causes: Causes, *, names: Names) -> None:
        self._causes = causes
        self._request = causes.request
        self._names = names

    def not_meant(self, counts: Counts) -> str:
        """Too few are what the pod allows; or there are too few."""
        total, meant = counts.total, counts.meant
        said = " and ".join(self._what_says_so())
        if not said:
            return f"{meant} of {counted(total, 'GPU')} can be given{needed(self._causes.most)}"
        if meant:
            what = some_of(meant, total, "GPU", one="is", many="are")
            return f"{what} what the pod allows ({said}){needed(self._causes.most)}"
        what = "is what the pod allows"
        return f"{none_of(total, 'GPU', one='is not what the pod allows', none=what)} ({said})"

    def classes(self, kinds: Iterable[Kind]) -> str:
        """What of the pod these kinds of GPUs do not take."""
        return " or ".join(sorted(frozenset().union(*(refused(kind, self._request) for kind in kinds))))

    def thin(self, kinds: Iterable[Kind]) -> ContainerRequest:
        """The first container that would have less of one of these kinds of GPUs than a context takes there."""
        kinds = list(kinds)
        return next(one for one in self._request.containers if any(has_no_context(one, kind) for kind in kinds))

    def too_thin(self, context: str, kinds: Iterable[Kind]) -> str:
        """Which container would have less of these kinds of GPUs than a context takes there, and how much."""
        one = self.thin(kinds)
        least = one.shares[-1]
        has = f"{least.compute} of its memory" if least.memory is None else str(least.memory)
        return f"a CUDA context takes {context}, and container {one.name} asks for {has} there"

    def size(self, piece: Piece) -> str:
        """What a GPU must have in all; every one has the compute but instances of MIG."""
        is_cut = (self._causes.allowed & self._causes.grid.cut).any()
        return " and ".join(filter(None, (f"{piece.compute} %" if is_cut else "", memory(piece))))

    @staticmethod
    def in_modes(found: Finding) -> str:
        """What one container needs, and for how many of its GPUs each mode has one."""
        return f"it needs {one_mode(found.part.needed)}, and of these {by_mode(found.modes)}"

    def so_many(self, room: int) -> str:
        """Of the containers that stay."""
        return f"{room} of its {counted(self._causes.staying, 'container')}"

    def no_room_where(self, fill: Fill) -> str:
        """For an init container: on its app containers' GPUs; beside sidecars that run on, if any were before it."""
        roles = [one.kind for one in takewhile(lambda one: one.name != fill.stuck, self._request.containers)]
        apps = " on its app containers' GPUs" if fill.off_apps else ""
        return f"{apps} beside the sidecars before it" if Role.SIDECAR in roles else apps

    def _what_says_so(self) -> list[str]:
        request, names, by_uuid = self._request, self._names, self._causes.named is not None
        said = [
            (request.models.allowed or request.models.forbidden, names.gpu_model),
            (by_uuid, names.gpu_uuid),
            (request.isolation, names.isolation),
        ]
        whole = [f"annotation {name}" for is_said, name in said if is_said]
        # A group's members are held to GPUs by their uuids too.
        return [*whole, "where its group lies"] if by_uuid and request.group else whole


def one_mode(gpus: int) -> str:
    """What a container that lies on several needs."""
    return f"{gpus} GPUs of one isolation mode"


def by_mode(modes: OfModes, *, word: str = "and") -> str:
    """How many there are of each, where there are several."""
    *first, last = [f"{count} {f'in {mode}' if mode else 'without one'}" for mode, count in modes]
    return f"{', '.join(first)} {word} {last}"


def some(count: int, among: int, *, total: int, which: str, verbs: tuple[str, str] = ("has", "have")) -> str:
    """`1 of 2 GPUs has`, and where these are not all that it has, which they are."""
    one, many = verbs if among == total else (f"{which} {verb}" for verb in verbs)
    return some_of(count, among, "GPU", one=one, many=many)


def needed(gpus: int) -> str:
    """Of one node."""
    return f", {gpus} are needed" if gpus > 1 else ""


def compute(piece: Piece, *, single: bool) -> str:
    """What of one GPU's is to be free, or of each of several."""
    them = "it" if single else "them"
    if piece.whole:
        return f"nobody on {them}"
    return f"{piece.compute} % free" if piece.compute else f"no one who has {them} at {WHOLE}"


def memory(piece: Piece) -> str:
    """What of one GPU's it takes; empty where it is all that a GPU has on which nobody is."""
    portion = "" if piece.whole and not piece.memory else f"{piece.portion} % of a GPU's memory"
    return " and ".join(filter(None, (f"{piece.memory} MiB" if piece.memory else "", portion if piece.portion else "")))


def have(count: int) -> str:
    """Of several only one has."""
    return agreed(count, "has", "have")
