"""GPUs as bars of slices: the upper strip is compute, the lower one memory; solid is used, pale is granted.

SVG with plain attributes, because the page's own policy forbids styles inside the HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aliquot_core.inventory import Health
from aliquot_scheduler.page.html import Html, join, link, tag, text
from aliquot_scheduler.page.model import GpuShown, SliceShown, State
from aliquot_scheduler.queues.telling.forms import Part, QueueRow

# So many colours can be told apart; the names stand beside them.
COLOURS = 12
# Where the two strips lie, and how high they are.
_COMPUTE = 0, 10
_MEMORY = 11, 4

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
    # What nobody has; and what the whole GPU does, whoever does it.
    free, marks = [_box(0, *_COMPUTE, width=100), _box(0, *_MEMORY, width=100)], []
    left = low = 0.0
    parts: list[Html] = []
    # An instance of MIG is drawn as wide as a card.
    wide = 100 / gpu.whole
    for one in gpu.slices:
        tall = _of_size(one.memory, gpu)
        parts += _slice(one, left=left, wide=wide, low=low, tall=tall, style=colour(one.queue, colours))
        left, low = left + wide * one.compute, low + tall
    # Of nothing there is no mark: at the very edge it reads as a frame.
    if gpu.used_compute:
        marks.append(_mark(gpu.used_compute, *_COMPUTE))
    if gpu.used_memory:
        marks.append(_mark(_of_size(gpu.used_memory, gpu), *_MEMORY))
    return tag(
        "svg",
        _shape("free", *free),
        *parts,
        _shape("mark", *marks),
        class_="bar sick" if gpu.health is Health.SICK else "bar",
        viewBox=f"0 0 100 {sum(_MEMORY)}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _slice(one: SliceShown, *, left: float, wide: float, low: float, tall: float, style: str) -> list[Html]:
    """Its compute, pale where that is granted and not used, and its memory."""
    memory = _box(low, *_MEMORY, width=tall)
    name = f"{one.pod}: {one.compute} %" if one.compute else f"{one.pod}: best effort"
    if one.used_compute is None or not one.compute:
        granted = [_box(left, *_COMPUTE, width=wide * one.compute)] if one.compute else []
        return [_shape(style, *granted, memory, tip=name)]
    used = min(one.compute, one.used_compute)
    return [
        _shape(f"{style} pale", _box(left, *_COMPUTE, width=wide * one.compute), tip=name),
        _shape(style, _box(left, *_COMPUTE, width=wide * used), memory),
    ]


def _of_size(memory: int, gpu: GpuShown) -> float:
    return 100 * memory / gpu.size if gpu.size else 0.0


def _mark(at: float, y: int, height: int) -> str:
    return _box(max(0, min(99, at) - 0.4), y, height, width=0.8)


def _box(x: float, y: int, height: int, *, width: float) -> str:
    return f"M{x:.4g} {y}h{width:.4g}v{height}h-{width:.4g}z"


def _shape(style: str, *boxes: str, tip: str = "") -> Html:
    """Boxes of one colour, written short: a large cluster has ten thousand of them."""
    told = f' data-tip="{text(tip)}"' if tip else ""
    return Html(f'<path class="{style}"{told} d="{"".join(boxes)}"/>')


def gpu_text(gpu: GpuShown) -> str:
    """The same in words."""
    use = "use unknown" if gpu.used_compute is None else f"{gpu.used_compute} % used"
    memory = f"{gpu.memory / 1024:.1f}/{gpu.size / 1024:.1f} GiB"
    pods = f"{len(gpu.slices)} pod{'' if len(gpu.slices) == 1 else 's'}"
    ill = "" if gpu.health is Health.HEALTHY else f", {gpu.health}"
    return f"{gpu.compute} % granted, {use}, {memory}, {pods}{ill}"


def gpu_line(gpu: GpuShown, colours: Colours) -> Html:
    """A GPU in a list: its number, its bar, its text."""
    label = join(
        tag("b", f"GPU {gpu.index}"),
        gpu_bar(gpu, colours),
        tag("span", gpu_text(gpu)),
    )
    return tag("li", link(label, "gpus", gpu.node, gpu.uuid))


def queue_bar(part: Part, *, whole: int) -> Html:
    """A queue's use against its guarantee, its limit and its fair share."""
    if not whole or part.used is None:
        return text("")
    scale = 100 / whole
    used, due = min(part.used, whole), min(part.guarantee or 0, whole)
    own = max(0, used - (part.borrowed or 0))
    parts = [
        tag("rect", class_="free", width=100, height=8),
        tag("rect", class_="due", width=round(due * scale, 2), height=8),
        tag("rect", class_="own", y=2, width=round(own * scale, 2), height=4),
        tag("rect", class_="lent", x=round(own * scale, 2), y=2, width=round((used - own) * scale, 2), height=4),
    ]
    for value, style in ((part.limit, "limit"), (part.fair_share, "fair")):
        if value is not None and value <= whole:
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
