"""Lists: queues, who waits, applications, pods."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from aliquot_scheduler.page.amounts import NONE, UNKNOWN, cards, gib
from aliquot_scheduler.page.bars import queue_bar
from aliquot_scheduler.page.html import Html, link, tag, text
from aliquot_scheduler.page.model import Owner, PodShown, SliceShown, Stage, State
from aliquot_scheduler.page.views import Piece, Region, View, keyed, row, table
from aliquot_scheduler.queues.telling.forms import Part, QueueRow

# More rows than people read; what is left out is counted.
MOST_ROWS = 200
_MOST_NAMED = 3


def queues_view(state: State) -> View:
    """Every queue: what it is due, what it has."""
    beyond = _beyond(state)
    pieces: list[Piece] = [
        tag(
            "p",
            "Each bar is the whole cluster: grey is what the queue is guaranteed, blue what it has, orange what it has "
            "borrowed from others; the thin lines are its fair share and, in red, its limit. Charged is what counts "
            "against a queue: a pod that has a GPU alone keeps all of its memory from others, so it is charged with "
            "that, though it may be granted less.",
            class_="hint",
        )
    ]
    for caption, unit, whole in (
        ("Compute, in GPUs", "compute", state.totals.compute),
        ("GPU memory", "memory", state.totals.memory),
    ):
        heads = ("Queue", "Bar", "Charged", "Guarantee", "Borrowed", "Limit", "Fair share", "Asked for", "Waiting pods")
        numbers = frozenset(range(2, 9))
        rows = {
            one.name: _queue(one, unit, whole=whole, heads=heads, numbers=numbers, beyond=beyond.get(one.name, ()))
            for one in state.queues
        }
        region = Region(name=f"queues-{unit}", element="tbody", children=rows)
        pieces += table(caption, heads, region, numbers=numbers)
    return View(title="Queues", section="queues", pieces=tuple(pieces))


def _beyond(state: State) -> dict[str, list[str]]:
    """The pods of each queue that use more than they were granted."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in (one for node in state.nodes for gpu in node.gpus for one in gpu.slices):
        if one.over_use:
            found[one.queue].add(one.pod)
    return {queue: sorted(pods) for queue, pods in found.items()}


def _queue(
    one: QueueRow, unit: str, *, whole: int, heads: Sequence[str], numbers: frozenset[int], beyond: Sequence[str]
) -> Html:
    part: Part = one.compute if unit == "compute" else one.memory
    amount = cards if unit == "compute" else gib
    held = tag("span", f" {one.stop}", class_="warn") if one.stop else text("")
    over = tag("span", f" more than granted: {_some(beyond)}", class_="warn") if beyond else text("")
    name = tag("span", one.name, held, over, class_=f"depth-{min(one.depth, 5)}")
    limit = "none" if part.limit is None else amount(part.limit)
    due = "none" if part.guarantee is None else amount(part.guarantee)
    told = (amount(part.used), due, amount(part.borrowed), limit, amount(part.fair_share), amount(part.asked))
    return row(one.name, name, queue_bar(part, whole=whole), *told, one.waiting, heads=heads, numbers=numbers)


def _some(pods: Sequence[str]) -> str:
    """As many as fit into a line."""
    more = len(pods) - _MOST_NAMED
    return ", ".join(pods[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def waiting_view(state: State) -> View:
    """Who waits and why."""
    of_reasons = ("Reason", "Pods")
    reasons = {
        reason: row(reason, reason, count, heads=of_reasons, numbers=frozenset({1}))
        for reason, count in sorted(state.reasons.items(), key=lambda item: (-item[1], item[0]))
    }
    heads = ("Pod", "Queue", "User", "Asks", "Since", "Why")
    shown = state.waiting[:MOST_ROWS]
    rows = {
        one.pod: row(
            one.pod,
            link(one.pod, "pods", *one.pod.split("/", 1)),
            one.queue,
            one.user,
            f"{one.compute} %, {gib(one.memory)}",
            since(one.since),
            f"{one.reason}: {one.why}",
            heads=heads,
            filter_=f"{one.pod} {one.queue} {one.user} {one.reason}".lower(),
        )
        for one in shown
    }
    pieces = (
        *table(
            "Why pods wait",
            of_reasons,
            Region(name="reasons", element="tbody", children=reasons),
            numbers=frozenset({1}),
        ),
        _filter("waiting"),
        *table(
            "Who waits, the first of each queue first", heads, Region(name="waiting", element="tbody", children=rows)
        ),
        _left_out("waiting-rest", state.totals.waiting - len(shown), none="" if shown else "Nobody waits."),
    )
    return View(title="Waiting", section="waiting", pieces=pieces)


def applications_view(state: State) -> View:
    """Pods by the workload that owns them, the largest first."""
    pods: dict[str, list[PodShown]] = defaultdict(list)
    for pod in state.pods:
        pods[pod.owner.key].append(pod)
    uses = _uses(state)
    weights = {key: sum(one.compute for one in of if one.stage is not Stage.ENDED) for key, of in pods.items()}
    ordered = sorted(pods, key=lambda key: (-weights[key], key))
    heads = (
        "Application",
        "Kind",
        "Queues",
        "Run",
        "Wait",
        "Ended",
        "Compute granted",
        "Compute used",
        "Memory granted",
    )
    numbers = frozenset({3, 4, 5, 6, 7, 8})
    rows = {key: _application(pods[key], uses, heads, numbers) for key in ordered[:MOST_ROWS]}
    pieces = (
        _filter("applications"),
        *table("Applications", heads, Region(name="applications", element="tbody", children=rows), numbers=numbers),
        _left_out("applications-rest", len(ordered) - len(rows)),
    )
    return View(title="Applications", section="applications", pieces=pieces)


def _application(
    pods: Sequence[PodShown], uses: dict[str, list[SliceShown]], heads: Sequence[str], numbers: frozenset[int]
) -> Html:
    owner = pods[0].owner
    stages = Counter(pod.stage for pod in pods)
    slices = [one for pod in pods for one in uses.get(pod.key, ())]
    queues = ", ".join(sorted({pod.queue for pod in pods if pod.queue}))
    return row(
        owner.key,
        link(f"{owner.namespace}/{owner.name}", "applications", owner.namespace, owner.kind, owner.name),
        owner.kind,
        queues,
        stages[Stage.RUNNING] + stages[Stage.STARTING],
        stages[Stage.WAITING] + stages[Stage.LET_IN],
        stages[Stage.ENDED],
        f"{sum(one.compute for one in slices)} %",
        used(slices),
        gib(sum(one.memory for one in slices)),
        heads=heads,
        numbers=numbers,
        filter_=f"{owner.key} {queues}".lower(),
    )


def application_view(owner: Owner, state: State) -> View:
    """One application's pods."""
    pods = [pod for pod in state.pods if pod.owner == owner]
    title = f"{owner.kind} {owner.namespace}/{owner.name}"
    if not pods:
        return View(title=title, section="applications", pieces=(tag("p", "It has no pods now."),), found=False)
    return View(title=title, section="applications", pieces=tuple(pod_rows(f"Pods of {title}", pods, state)))


def pod_rows(caption: str, pods: Sequence[PodShown], state: State) -> list[Piece]:
    """A table of pods."""
    uses = _uses(state)
    heads = ("Pod", "Queue", "Stage", "Node", "Compute charged", "Compute used", "Memory charged", "Created")
    numbers = frozenset({4, 5, 6})
    ordered = sorted(pods, key=lambda pod: (pod.stage is Stage.ENDED, pod.key))
    rows = {
        pod.uid: row(
            pod.uid,
            link(pod.key, "pods", pod.namespace, pod.name),
            pod.queue,
            pod.stage if pod.stage is not Stage.ENDED else f"ended ({pod.phase})",
            link(pod.node, "nodes", pod.node) if pod.node else NONE,
            f"{pod.compute} %",
            used(uses.get(pod.key, ())),
            gib(pod.memory),
            since(pod.created),
            heads=heads,
            numbers=numbers,
        )
        for pod in ordered[:MOST_ROWS]
    }
    region = Region(name="pods", element="tbody", children=rows)
    return [*table(caption, heads, region, numbers=numbers), _left_out("pods-rest", len(ordered) - len(rows))]


def used(slices: Sequence[SliceShown]) -> str:
    """What slices use together; unknown as soon as one is."""
    known = [one.used_compute for one in slices if one.used_compute is not None]
    if len(known) < len(slices):
        return UNKNOWN
    return f"{sum(known)} %" if slices else NONE


def since(instant: str) -> Html:
    """An instant; who runs scripts reads how long ago it was."""
    return tag("time", instant, datetime=instant) if instant else text(NONE)


def _uses(state: State) -> dict[str, list[SliceShown]]:
    found: dict[str, list[SliceShown]] = defaultdict(list)
    for node in state.nodes:
        for gpu in node.gpus:
            for one in gpu.slices:
                found[one.pod].append(one)
    return found


def _filter(region: str) -> Html:
    box = tag("input", type="search", id=f"filter-{region}", data_filters=region, autocomplete="off")
    return tag("p", tag("label", "Show rows that contain ", box), class_="filter")


def _left_out(name: str, count: int, *, none: str = "") -> Region:
    said = f"{count} more are not listed here." if count > 0 else none
    return Region(name=name, children={"rest": keyed("p", "rest", said, class_="hint")})
