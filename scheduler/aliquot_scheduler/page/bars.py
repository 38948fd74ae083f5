"""GPUs as bars of slices: the upper strip is compute, the lower one memory; solid is used, pale is granted.

SVG with plain attributes, because the page's own policy forbids styles inside the HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aliquot_core.inventory import Health
from aliquot_scheduler.page.amounts import UNKNOWN, gib, percent
from aliquot_scheduler.page.html import Html, join, link, tag, text
from aliquot_scheduler.page.model import GpuShown, SliceShown, State
from aliquot_scheduler.queues.telling import Part, QueueRow

# So many colours can be told apart; the names stand beside them.
COLOURS = 12
_COMPUTE_HEIGHT = 10
_MEMORY_AT = 11
_MEMORY_HEIGHT = 4

Colours = Mapping[str, int]


def colours_of(queues: Sequence[QueueRow]) -> Colours:
    """A colour for each queue that pods wait in."""
    leaves = [queue.name for queue in queues if queue.leaf]
    return {name: number % COLOURS for number, name in enumerate(sorted(leaves))}


def colour(queue: str, colours: Colours) -> str:
    """The class that paints something of a queue."""
    number = colours.get(queue)
    return "q-none" if number is None else f"q{number}"


def gpu_bar(gpu: GpuShown, colours: Colours) -> Html:
    """One GPU; whoever can't see it reads the text beside it."""
    parts: list[Html] = [tag("rect", class_="free", width=100, height=_COMPUTE_HEIGHT)]
    parts.append(tag("rect", class_="free", y=_MEMORY_AT, width=100, height=_MEMORY_HEIGHT))
    left = low = 0.0
    for one in gpu.slices:
        wide, tall = one.compute, 100 * one.memory / gpu.size if gpu.size else 0.0
        used = None if one.used_memory is None or not one.memory else min(1.0, one.used_memory / one.memory)
        parts += _strip(one, at=left, width=wide, y=0, height=_COMPUTE_HEIGHT, used=_used(one), colours=colours)
        parts += _strip(one, at=low, width=tall, y=_MEMORY_AT, height=_MEMORY_HEIGHT, used=used, colours=colours)
        left, low = left + wide, low + tall
    if gpu.used_compute is not None:
        # What the whole GPU does, whoever does it.
        parts.append(
            tag("rect", class_="mark", x=max(0, min(99, gpu.used_compute) - 0.4), width=0.8, height=_COMPUTE_HEIGHT)
        )
    style = "bar sick" if gpu.health is Health.SICK else "bar"
    box = f"0 0 100 {_MEMORY_AT + _MEMORY_HEIGHT}"
    return tag("svg", *parts, class_=style, viewBox=box, preserveAspectRatio="none", aria_hidden="true")


def _used(one: SliceShown) -> float | None:
    if one.used_compute is None:
        return None
    return min(1.0, one.used_compute / one.compute) if one.compute else 1.0


def _strip(
    one: SliceShown, *, at: float, width: float, y: int, height: int, used: float | None, colours: Colours
) -> list[Html]:
    """A slice, and how much of it is used; where that is not known it is solid."""
    if not width:
        return []
    style, wide = colour(one.queue, colours), round(width, 2)
    tip = f"{one.pod}: {one.compute} %, {gib(one.memory)}, queue {one.queue or UNKNOWN}"
    pale = "" if used is None else " pale"
    whole = tag("rect", class_=f"{style}{pale}", x=round(at, 2), y=y, width=wide, height=height, data_tip=tip)
    if not used:
        return [whole]
    return [whole, tag("rect", class_=f"{style} in", x=round(at, 2), y=y, width=round(used * width, 2), height=height)]


def gpu_text(gpu: GpuShown) -> str:
    """The same in words."""
    pods = f"{len(gpu.slices)} pod{'' if len(gpu.slices) == 1 else 's'}"
    ill = "" if gpu.health is Health.HEALTHY else f", {gpu.health}"
    return (
        f"{gpu.compute} % granted, {percent(gpu.used_compute)} used, {gib(gpu.memory)} of {gib(gpu.size)}, {pods}{ill}"
    )


def gpu_line(gpu: GpuShown, colours: Colours) -> Html:
    """A GPU in a list: its number, its bar, its text."""
    label = join(
        tag("span", tag("span", "GPU ", class_="away"), gpu.index, class_="which"),
        gpu_bar(gpu, colours),
        tag("span", gpu_text(gpu), class_="said"),
    )
    return tag("li", link(label, "gpus", gpu.node, gpu.uuid, class_="gpu"))


def queue_bar(part: Part, *, whole: int) -> Html:
    """A queue's use against its guarantee, its limit and its fair share."""
    if not whole or part.used is None:
        return text("")
    most = max(whole, part.limit or 0, part.guarantee or 0, part.used)
    scale = 100 / most
    parts = [tag("rect", class_="free", width=100, height=8)]
    own = min(part.used, part.guarantee or 0)
    if part.guarantee:
        parts.append(tag("rect", class_="due", width=round(part.guarantee * scale, 2), height=8))
    parts.append(tag("rect", class_="own", y=2, width=round(own * scale, 2), height=4))
    parts.append(
        tag("rect", class_="lent", x=round(own * scale, 2), y=2, width=round((part.used - own) * scale, 2), height=4)
    )
    for value, style in ((part.limit, "limit"), (part.fair_share, "fair")):
        if value is not None:
            parts.append(tag("rect", class_=style, x=max(0.0, round(value * scale, 2) - 0.6), width=0.6, height=8))
    return tag("svg", *parts, class_="bar queue", viewBox="0 0 100 8", preserveAspectRatio="none", aria_hidden="true")


def legend(state: State, colours: Colours) -> dict[str, Html]:
    """Which colour is whose."""
    return {
        name: tag(
            "li",
            tag("span", class_=f"swatch s-{colour(name, colours)}", aria_hidden="true"),
            link(name, "queues"),
            data_key=name,
        )
        for name in sorted(queue.name for queue in state.queues if queue.leaf)
    }
