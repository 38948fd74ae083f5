"""The sentences of refusals counted anew: each number that one says, by the plain list of a node's GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations, permutations, takewhile

from aliquot_core.request import ContainerRequest, Kind
from aliquot_scheduler.fit.demand import demand_of, pieces_of
from support.mixed_node import Scene, Spot, fresh, shared, thin

_NEEDED = r"(?:, (?P<needed>\d+) are needed)?"
_MEMORY = r"(?:(?P<mib>\d+) MiB)?(?: and )?(?:(?P<portion>\d+) % of a GPU's memory)?"
_OF = r"(?P<count>\d+) of (?P<among>\d+) GPUs?(?P<which> that it may have| that the pod allows)?"
_FREE = r"(?:(?P<compute>\d+) % free|(?P<whole>nobody on \w+)|no one who has \w+ at 100 %)"
_ALSO = r"(?:(?P<both>\d+) ha(?:s|ve) also |(?P<neither>none has also |but not )|(?P<roomy>\d+) ha(?:s|ve) |none has )"
_ROOM = re.compile(rf"{_OF} ha(?:s|ve) {_FREE}(?P<also>, {_ALSO}{_MEMORY}(?: either)?)?{_NEEDED}")
_LARGE = re.compile(rf"{_OF} (?:is|are) large enough for (?:(?P<compute>\d+) %)?(?: and )?{_MEMORY}{_NEEDED}")
_MEANT = re.compile(rf"{_OF} (?:(?:is|are) what the pod allows \(.*\)|can be given){_NEEDED}")
_NONE_MEANT = re.compile(r"(?:none of (?P<among>\d+) GPUs is|the only GPU is not) what the pod allows \(.*\)")
_MODES = re.compile(rf"by their isolation {_OF} takes? what is (?P<classes>[a-z -]+){_NEEDED}")
_CONTEXT = re.compile(
    rf"a CUDA context takes (?P<context>\d+) MiB on {_OF}, and container (?P<name>\S+) asks for "
    rf"(?:(?P<mib>\d+) MiB|(?P<part>\d+) % of its memory) there{_NEEDED}"
)
_NOT_ALL = re.compile(r"(?P<count>\d+) of its (?P<all>\d+) containers finds? room even on an empty node")
_STUCK = re.compile(
    r"its init container (?P<name>\S+) finds no room(?P<apps> on its app containers' GPUs)?"
    r"(?: beside the sidecars before it)?, even on an empty node"
)
_TOGETHER = re.compile(r"its GPUs have room for one container, not for all (?P<all>\d+) of the pod together")
_APART = re.compile(
    r"it needs (?P<needed>\d+) GPUs of one isolation mode, and of these (?P<there>.+) "
    r"(?:(?P<large>are large enough)|have room)"
)
_OF_MODE = re.compile(r"(?P<count>\d+) in (?P<mode>\w+)")
_NOT_GIVEN = re.compile(r"none of its GPUs can be given: .*|it has no GPUs")


def is_true(scene: Scene, why: str) -> bool:
    """Whether a sentence says of the scene what is so."""
    said = why.split("; ", maxsplit=1)[0]
    forms = [
        (_ROOM, _room),
        (_LARGE, _large),
        (_MEANT, _meant),
        (_NONE_MEANT, _none_meant),
        (_MODES, _modes),
        (_CONTEXT, _context),
        (_NOT_ALL, _not_all),
        (_STUCK, _stuck),
        (_TOGETHER, _together),
        (_APART, _apart),
        (_NOT_GIVEN, _not_given),
    ]
    return any(holds(scene, match) for pattern, holds in forms if (match := pattern.fullmatch(said)))


def _room(scene: Scene, match: re.Match[str]) -> bool:
    free = [one for one in scene.allowed if _is_free(one, match)]
    roomy = [one for one in scene.allowed if one.memory >= _memory(one, match)]
    both = [one for one in free if one in roomy]
    if match["also"] is None:
        told = len(both) == len(free)
    elif match["both"] or match["neither"]:
        told = len(both) == _number(match, "both") and bool(free)
    else:
        told = len(roomy) == _number(match, "roomy") and not free
    return told and _among(scene, match, free, of=scene.allowed) and _lack(scene, match, both)


def _large(scene: Scene, match: re.Match[str]) -> bool:
    able = [
        one
        for one in scene.allowed
        if one.gpu.compute.value >= _number(match, "compute") and one.gpu.memory >= _memory(one, match)
    ]
    return _among(scene, match, able, of=scene.allowed) and _lack(scene, match, able)


def _meant(scene: Scene, match: re.Match[str]) -> bool:
    return _among(scene, match, scene.meant, of=scene.there) and _lack(scene, match, scene.meant)


def _none_meant(scene: Scene, match: re.Match[str]) -> bool:
    return not scene.meant and len(scene.there) == int(match["among"] or 1)


def _modes(scene: Scene, match: re.Match[str]) -> bool:
    refused = {what for one in scene.meant for what in scene.refused(one.gpu)}
    same = set(match["classes"].split(" or ")) == refused
    return same and _among(scene, match, scene.taking, of=scene.meant) and _lack(scene, match, scene.taking)


def _context(scene: Scene, match: re.Match[str]) -> bool:
    one = next(one for one in scene.containers if one.name == match["name"])
    asks, context = one.shares[-1], _number(match, "context")
    out = [spot for spot in scene.taking if spot not in scene.allowed and spot.gpu.context == context]
    asked = asks.compute.value == _number(match, "part") if match["part"] else asks.memory is not None
    asked = asked and (not match["mib"] or (asks.memory is not None and asks.memory.value == _number(match, "mib")))
    told = asked and any(thin(one, spot.gpu) for spot in out)
    return told and _among(scene, match, out, of=scene.taking) and _lack(scene, match, scene.allowed)


def _not_all(scene: Scene, match: re.Match[str]) -> bool:
    """So many do in some way, and all of them in none."""
    staying, count = [one for one in scene.containers if one.kind is not Kind.INIT], _number(match, "count")
    some = any(scene.fits(emptied=True, only=kept) for kept in combinations(staying, count))
    return some and len(staying) == _number(match, "all") and not scene.fits(emptied=True, only=staying)


def _stuck(scene: Scene, match: re.Match[str]) -> bool:
    """Beside the sidecars alone; or where all lie that stay, and it on its app containers' GPUs."""
    if match["apps"]:
        return not scene.fits(emptied=True)
    before = list(takewhile(lambda one: one.name != match["name"], scene.containers))
    init = scene.containers[len(before)]
    return not scene.fits(emptied=True, only=[*(one for one in before if one.kind is Kind.SIDECAR), init])


def _together(scene: Scene, match: re.Match[str]) -> bool:
    each = all(scene.fits(emptied=False, only=[one]) for one in scene.containers)
    return each and len(scene.containers) == _number(match, "all") and not scene.fits(emptied=False)


def _apart(scene: Scene, match: re.Match[str]) -> bool:
    """One of its containers needs so many of one mode, and there are so many of each that is told, and never enough."""
    spots = [fresh(one) for one in scene.allowed] if match["large"] else scene.allowed
    told = {found["mode"]: int(found["count"]) for found in _OF_MODE.finditer(match["there"])}
    modes = set(told) | {mode for spot in spots for mode in shared([spot.gpu], asked=scene.request)}
    for one in scene.containers:
        counts = {mode: _most_of_it(one, [spot for spot in spots if mode in spot.gpu.isolation]) for mode in modes}
        if len(one.shares) == _number(match, "needed") and told.items() <= counts.items():
            return bool(told) and max(counts.values()) < len(one.shares) and max(counts.values()) == max(told.values())
    return False


def _most_of_it(one: ContainerRequest, spots: Sequence[Spot]) -> int:
    """For how many of its GPUs there is one of these."""
    return max(
        count
        for count in range(len(one.shares) + 1)
        for shares in combinations(one.shares, count)
        for way in permutations(spots, count)
        if all(spot.has(share) for spot, share in zip(way, shares, strict=True))
    )


def _not_given(scene: Scene, _: re.Match[str]) -> bool:
    return not scene.there


def _among(scene: Scene, match: re.Match[str], some: Sequence[Spot], *, of: Sequence[Spot]) -> bool:
    """So many of so many; which these are is said where they are not all that can be given."""
    told = bool(match["which"]) == (len(of) < len(scene.there))
    return told and len(some) == _number(match, "count") and len(of) == _number(match, "among")


def _lack(scene: Scene, match: re.Match[str], have: Sequence[Spot]) -> bool:
    """One of its containers needs so many GPUs that have as much as is said, and there are fewer."""
    needed, demand = _number(match, "needed") or 1, demand_of(scene.request)
    columns = [demand.pieces] if demand.pieces else [pieces_of(one) for one in scene.containers]
    least = [_number(match, what) for what in ("compute", "mib", "portion")]
    if "context" in match.groupdict():
        least = [0, 0, 0]
    as_large = [
        sum(all(map(int.__ge__, (one.compute, one.memory, one.portion), least)) for one in pieces) for pieces in columns
    ]
    return len(have) < needed <= max(as_large)


def _is_free(one: Spot, match: re.Match[str]) -> bool:
    return one.has_compute(100 if match["whole"] else _number(match, "compute"))


def _memory(one: Spot, match: re.Match[str]) -> int:
    portion = _number(match, "portion")
    return max(_number(match, "mib"), max(1, one.gpu.usable.value * portion // 100) if portion else 0)


def _number(match: re.Match[str], name: str) -> int:
    return int(match.groupdict().get(name) or 0)
