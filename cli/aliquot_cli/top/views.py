"""The four tables of `aliquot top`: what they list, by what they are sorted, and how a row looks. Pure.

A table lists thousands of things and shows a screenful: rows are sorted and filtered as things, and drawn only when
they are seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aliquot_cli.tables import ago
from aliquot_cli.top.bars import Part, cut_bar, level_bar
from aliquot_cli.top.columns import Column, Layout
from aliquot_cli.top.ink import Line, Span, Tone
from aliquot_cli.top.tabular import Order, Scene, Table, Told
from aliquot_core.instants import seconds_of
from aliquot_core.inventory import Health
from aliquot_scheduler.page.model import GpuShown, PodShown, Stage, WaitingShown
from aliquot_scheduler.queues.telling.forms import QueueRow

_UNKNOWN = "-"
_GIB = 1024


def _amount(number: int | None) -> Span:
    return Span(_UNKNOWN if number is None else str(number), Tone.DIM if number is None else Tone.PLAIN)


def _of(used: int | None, granted: int) -> Span:
    return Span(f"{granted}" if used is None else f"{used}/{granted}")


# --- GPUs ------------------------------------------------------------------------------------------------------------
def _gpu(gpu: GpuShown, layout: Layout, scene: Scene) -> Line:
    bar = _gpu_bar(gpu, scene, width=layout.size("COMPUTE"))
    sick = gpu.health is not Health.HEALTHY
    beside, out = scene.beside.get(gpu.node, ""), scene.out.get(gpu.node, "")
    pods = ", ".join(_pod_name(one.pod) for one in gpu.slices)
    note = gpu.reason or str(gpu.health) if sick else "; ".join(filter(None, (out and f"out: {out}", pods, beside)))
    return layout.line(
        [
            Span(gpu.node, Tone.BAD if out else Tone.PLAIN),
            Span(str(gpu.index), Tone.BAD if gpu.health is Health.SICK else Tone.PLAIN),
            Span(_short(gpu.model), Tone.DIM),
            bar,
            Span(f"{gpu.compute}"),
            _amount(gpu.used_compute),
            Span(_gib(gpu.memory, gpu.size)),
            Span(_UNKNOWN if gpu.used_memory is None else f"{gpu.used_memory / _GIB:.0f}"),
            Span(note, Tone.BAD if sick or beside or out else Tone.PLAIN),
        ]
    )


def _gpu_bar(gpu: GpuShown, scene: Scene, *, width: int) -> Line:
    parts = [
        Part(one.compute or 0, _part_used(one.compute, one.used_compute), scene.hues.get(one.queue, Tone.PLAIN))
        for one in gpu.slices
    ]
    # What nobody has there is nobody's to get.
    return cut_bar(parts, whole=gpu.whole, width=width, out=gpu.node in scene.out)


def _gpu_words(gpu: GpuShown) -> str:
    return " ".join((gpu.node, gpu.uuid, gpu.model, gpu.health, *(f"{one.pod} {one.queue}" for one in gpu.slices)))


def _part_used(granted: int, used: int | None) -> float | None:
    return None if used is None else min(granted, used)


def _pod_name(key: str) -> str:
    return key.partition("/")[2] or key


def _short(model: str) -> str:
    """What tells GPUs of a node apart: of an instance not its card, for which there is no room beside it."""
    card, of, kind = model.partition(" MIG ")
    return f"MIG-{kind}" if of else card.removeprefix("NVIDIA ").replace(" ", "-")


def _gib(granted: int, size: int) -> str:
    return f"{granted / _GIB:.0f}/{size / _GIB:.0f}"


GPUS = Table[GpuShown](
    title="GPUs",
    columns=[
        Column(title="NODE", least=8, most=16),
        Column(title="GPU", least=3, right=True),
        Column(title="MODEL", least=10, most=15, spare=3),
        Column(title="COMPUTE", least=20, most=52),
        Column(title="%", least=3, right=True),
        Column(title="USED", least=4, right=True),
        Column(title="GIB", least=7, right=True),
        Column(title="GIB USED", least=8, right=True, spare=2),
        Column(title="PODS", least=12, most=400, spare=1),
    ],
    orders=[
        Order(title="node"),
        Order(title="granted", key=lambda gpu: -gpu.compute),
        Order(title="used", key=lambda gpu: -(gpu.used_compute or 0)),
        Order(title="memory", key=lambda gpu: -gpu.memory),
        Order(title="pods", key=lambda gpu: -len(gpu.slices)),
    ],
    things=lambda state: [gpu for node in state.nodes for gpu in node.gpus],
    words=_gpu_words,
    name=lambda gpu, _: f"gpu/{gpu.uuid}",
    draw=_gpu,
)


# --- queues ----------------------------------------------------------------------------------------------------------
def _queue(queue: QueueRow, layout: Layout, scene: Scene) -> Line:
    part = queue.compute
    bar = level_bar(
        used=part.used or 0,
        guarantee=part.guarantee or 0,
        fair=part.fair_share,
        whole=scene.whole,
        width=layout.size("COMPUTE"),
        tone=scene.hues.get(queue.name, Tone.PLAIN),
    )
    return layout.line(
        [
            Span("  " * queue.depth + queue.name),
            bar,
            *(_amount(one) for one in (part.used, part.guarantee, part.borrowed, part.fair_share, part.limit)),
            _amount(queue.memory.used),
            _amount(queue.waiting),
            Span(queue.stop, Tone.BAD),
        ]
    )


QUEUES = Table[QueueRow](
    title="queues",
    columns=[
        Column(title="QUEUE", least=10, most=30),
        Column(title="COMPUTE", least=12, most=48),
        Column(title="USED", least=5, right=True),
        Column(title="GUARANT", least=7, right=True),
        Column(title="BORROW", least=6, right=True),
        Column(title="FAIR", least=5, right=True),
        Column(title="LIMIT", least=6, right=True, spare=2),
        Column(title="MEM MIB", least=9, right=True, spare=3),
        Column(title="WAIT", least=5, right=True),
        Column(title="STOP", least=5, spare=1),
    ],
    orders=[
        Order(title="tree"),
        Order(title="used", key=lambda queue: -(queue.compute.used or 0)),
        Order(title="borrowed", key=lambda queue: -(queue.compute.borrowed or 0)),
        Order(title="waiting", key=lambda queue: -(queue.waiting or 0)),
    ],
    things=lambda state: state.queues,
    words=lambda queue: queue.name,
    name=lambda queue, domain: f"queue.{domain}/{queue.name}",
    draw=_queue,
)


# --- pods ------------------------------------------------------------------------------------------------------------
_STAGES = {Stage.RUNNING: Tone.GOOD, Stage.ENDED: Tone.DIM}


def _pod(pod: PodShown, layout: Layout, scene: Scene) -> Line:
    compute, memory = scene.used.get(pod.key, (None, None))
    return layout.line(
        [
            Span(pod.key),
            Span(pod.stage, _STAGES.get(pod.stage, Tone.PLAIN)),
            Span(pod.queue, scene.hues.get(pod.queue, Tone.PLAIN)),
            Span(pod.node),
            Span(",".join(scene.slices.get(pod.key, ())), Tone.PLAIN),
            _of(compute, pod.compute),
            _of(memory, pod.memory),
            Span(ago(pod.created, now=scene.state.at)),
            Span(f"{pod.owner.kind}/{pod.owner.name}", Tone.DIM),
        ]
    )


PODS = Table[PodShown](
    title="pods",
    columns=[
        Column(title="POD", least=16, most=44),
        Column(title="STATE", least=8),
        Column(title="QUEUE", least=8, most=16),
        Column(title="NODE", least=8, most=20, spare=2),
        Column(title="GPU", least=5, spare=1),
        Column(title="% USED", least=7, right=True),
        Column(title="MIB USED", least=12, right=True),
        Column(title="AGE", least=4, right=True),
        Column(title="OWNER", least=12, most=40, spare=3),
    ],
    orders=[
        Order(title="name", key=lambda pod: pod.key),
        Order(title="granted", key=lambda pod: -pod.compute),
        Order(title="memory", key=lambda pod: -pod.memory),
        Order(title="age", key=lambda pod: pod.created),
        Order(title="queue", key=lambda pod: (pod.queue, pod.key)),
        Order(title="state", key=lambda pod: (pod.stage, pod.key)),
    ],
    things=lambda state: [pod for pod in state.pods if pod.stage is not Stage.ENDED],
    words=lambda pod: f"{pod.key} {pod.queue} {pod.node} {pod.stage} {pod.owner.kind}/{pod.owner.name}",
    name=lambda pod, _: f"pod/{pod.name}",
    draw=_pod,
)


# --- who waits -------------------------------------------------------------------------------------------------------
def _waiting(one: WaitingShown, layout: Layout, scene: Scene) -> Line:
    return layout.line(
        [
            Span(one.pod),
            Span(one.queue, scene.hues.get(one.queue, Tone.PLAIN)),
            Span(f"{one.compute}"),
            Span(f"{one.memory}"),
            Span(ago(one.since, now=scene.state.at)),
            Span(one.why),
        ]
    )


WAITING = Table[WaitingShown](
    title="waiting",
    columns=[
        Column(title="POD", least=16, most=36),
        Column(title="QUEUE", least=8, most=16),
        Column(title="%", least=5, right=True),
        Column(title="MIB", least=7, right=True),
        Column(title="WAITED", least=6, right=True),
        Column(title="WHY", least=20, most=400),
    ],
    orders=[
        Order(title="turn"),
        Order(title="waited", key=lambda one: seconds_of(one.since) or 0.0),
        Order(title="asks", key=lambda one: -one.compute),
        Order(title="queue", key=lambda one: (one.queue, one.since)),
    ],
    things=lambda state: state.waiting,
    words=lambda one: f"{one.pod} {one.queue} {one.user} {one.reason} {one.why}",
    name=lambda one, _: f"pod/{_pod_name(one.pod)}",
    draw=_waiting,
    tell=lambda one: Told(of=one.pod, text=one.why),
    told_in="WHY",
)

TABLES: Sequence[Table[Any]] = (GPUS, QUEUES, PODS, WAITING)
