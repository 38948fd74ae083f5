"""The whole cluster, node by node; and one node."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_scheduler.page.amounts import NONE, UNKNOWN, by_cause, cards, gib, held_beside, part_of
from aliquot_scheduler.page.bars import Colours, colours_of, gpu_bar, gpu_line, gpu_text, legend
from aliquot_scheduler.page.html import Html, join, link, tag
from aliquot_scheduler.page.lists import pod_rows
from aliquot_scheduler.page.model import GpuShown, NodeShown, State, Totals
from aliquot_scheduler.page.views import Region, View, keyed, row, table


class ClusterView:
    """Draws each node once, until something of it changes."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[NodeShown, Html]] = {}
        self._colours: Colours = {}

    def view(self, state: State) -> View:
        """Everything."""
        colours = colours_of(state.queues)
        if colours != self._colours:
            self._colours, self._nodes = colours, {}
        drawn = {node.name: self._node(node, colours) for node in state.nodes}
        self._nodes = {name: (node, drawn[name]) for node in state.nodes for name in (node.name,)}
        pieces = (
            Region(name="totals", element="dl", style="tiles", children=totals(state)),
            tag("h2", "GPUs by node", id="nodes-heading"),
            Region(name="hint", children={"hint": keyed("p", "hint", _hint(state), class_="hint")}),
            Region(name="legend", element="ul", style="legend", children=legend(state, colours)),
            filter_box("nodes", "Show nodes whose name, model or queues contain"),
            Region(name="nodes", style="nodes", children=drawn or _nothing()),
        )
        return View(title="Cluster", section="cluster", pieces=pieces)

    def _node(self, node: NodeShown, colours: Colours) -> Html:
        known = self._nodes.get(node.name)
        return known[1] if known and known[0] is node else _drawn(node, colours)


def node_view(name: str, state: State) -> View:
    """One node: its GPUs and who holds what there."""
    node = next((one for one in state.nodes if one.name == name), None)
    if node is None:
        return View(title=f"Node {name}", section="cluster", pieces=(tag("p", "There is no such node."),), found=False)
    colours = colours_of(state.queues)
    heads = (
        "GPU",
        "Model",
        "Bar",
        "Health",
        "Compute granted",
        "Compute used",
        "Memory granted",
        "Memory used",
        "Pods",
    )
    numbers = frozenset({4, 5, 6, 7, 8})
    gpus = {gpu.uuid: _gpu_row(gpu, colours, heads, numbers) for gpu in node.gpus}
    said = {"state": keyed("p", "state", node.out or "Pods are bound here.", class_="warn" if node.out else "good")}
    if node.strays:
        said["strays"] = keyed("p", "strays", held_beside(node.strays), class_="warn")
    pods = [pod for pod in state.pods if pod.node == name]
    pieces = (
        Region(name="node-state", children=said),
        *table(f"GPUs of {name}", heads, Region(name="gpus", element="tbody", children=gpus), numbers=numbers),
        tag("h2", "Pods"),
        *pod_rows(f"Pods on {name}", pods, state),
    )
    return View(title=f"Node {name}", section="cluster", pieces=pieces)


def _gpu_row(gpu: GpuShown, colours: Colours, heads: Sequence[str], numbers: frozenset[int]) -> Html:
    return row(
        gpu.uuid,
        link(f"GPU {gpu.index}", "gpus", gpu.node, gpu.uuid),
        gpu.model,
        gpu_bar(gpu, colours),
        gpu.health + (f": {gpu.reason}" if gpu.reason else ""),
        f"{gpu.compute} %",
        "unknown" if gpu.used_compute is None else f"{gpu.used_compute} %",
        f"{gib(gpu.memory)} of {gib(gpu.size)}",
        gib(gpu.used_memory),
        len(gpu.slices),
        heads=heads,
        numbers=numbers,
    )


def paused(state: State) -> Region:
    """Above every view: why what is shown stands still."""
    said = (
        {"paused": keyed("p", "paused", f"Nothing is decided: {state.paused}.", class_="warn")} if state.paused else {}
    )
    return Region(name="paused", children=said)


def totals(state: State) -> dict[str, Html]:
    """The tiles above everything."""
    one = state.totals
    compute = f", {cards(one.compute_stray)} without a grant" if one.compute_stray else ""
    memory = f", {gib(one.memory_stray)} without a grant" if one.memory_stray else ""
    tiles = {
        "gpus": ("GPUs", str(one.gpus), f"{one.gpus_sick} sick" if one.gpus_sick else "all healthy"),
        "nodes": ("Nodes", str(one.nodes), _nodes_told(one)),
        "compute": (
            "Compute granted",
            part_of(one.compute_granted, one.compute),
            f"{cards(one.compute_granted)} of {cards(one.compute)} GPUs{compute}",
        ),
        "used": ("Compute used", part_of(one.compute_used, one.compute), "of all; what processes really do"),
        "memory": ("Memory granted", part_of(one.memory_granted, one.memory), f"{gib(one.memory_granted)}{memory}"),
        "pods": ("Pods that run", str(one.running), f"{one.let_in} let in since this replica leads"),
        "evicted": ("Pods evicted", UNKNOWN if one.evicted is None else str(one.evicted), _evicted_for(one)),
        "waiting": ("Pods that wait", str(one.waiting), state.paused or "for their turn"),
    }
    return {
        key: keyed("div", key, tag("dt", name), tag("dd", value, class_="big"), tag("dd", more, class_="more"))
        for key, (name, value, more) in tiles.items()
    }


def _nodes_told(totals: Totals) -> str:
    counts = ((totals.nodes_out, "out"), (totals.nodes_unheard, "not heard of"))
    return ", ".join(f"{count} {what}" for count, what in counts if count) or "all in"


def _evicted_for(totals: Totals) -> str:
    told = by_cause(totals.evicted_for)
    return f"{told}; since this replica leads" if told else "since this replica leads"


def filter_box(region: str, label: str) -> Html:
    """Hides what does not contain what is written."""
    box = tag("input", type="search", id=f"filter-{region}", data_filters=region, autocomplete="off")
    return tag("p", tag("label", label, " ", box), class_="filter")


def _drawn(node: NodeShown, colours: Colours) -> Html:
    models = sorted({gpu.model for gpu in node.gpus})
    queues = sorted({one.queue for gpu in node.gpus for one in gpu.slices})
    warned = [tag("p", why, class_="warn") for why in (node.out, held_beside(node.strays)) if why]
    head = tag("h3", link(node.name, "nodes", node.name), " ", tag("small", ", ".join(models)))
    ill = [tag("p", f"GPU {gpu.index}: {gpu.reason}", class_="warn") for gpu in node.gpus if gpu.reason]
    lines = tag("ul", *(gpu_line(gpu, colours) for gpu in node.gpus), class_="gpus")
    words = " ".join((node.name, *models, *queues)).lower()
    return keyed("section", node.name, head, *warned, *ill, lines, class_="node", data_filter=words)


def _hint(state: State) -> str:
    bars = "Each bar is one GPU, compute above and memory below, by queue."
    if state.used_at is None:
        return f"{bars} It shows what is granted: what is used nobody tells this page (setting page.usage)."
    return f"{bars} Solid compute is used, pale is granted and idle; the thin line is all use of the GPU."


def _nothing() -> dict[str, Html]:
    return {"none": keyed("p", "none", "No node has told of GPUs yet.")}


def gpu_view(node: str, uuid: str, state: State) -> View:
    """One GPU: what it is, and each slice of it."""
    found = ((gpu, one) for one in state.nodes if one.name == node for gpu in one.gpus if gpu.uuid == uuid)
    gpu, shown = next(found, (None, None))
    if gpu is None or shown is None:
        return View(title=f"GPU {uuid}", section="cluster", pieces=(tag("p", "There is no such GPU."),), found=False)
    colours = colours_of(state.queues)
    facts = {
        "bar": keyed("div", "bar", gpu_bar(gpu, colours), tag("p", gpu_text(gpu)), class_="large"),
        "facts": keyed("dl", "facts", *_facts(gpu), class_="facts"),
    }
    if shown.strays:
        facts["strays"] = keyed("p", "strays", held_beside(shown.strays), class_="warn")
    heads = ("Pod", "Queue", "Stage", "Compute granted", "Compute used", "Memory granted", "Memory used", "Alone")
    numbers = frozenset({3, 4, 5, 6})
    rows = {
        one.pod: row(
            one.pod,
            link(one.pod, "pods", *one.pod.split("/", 1)),
            link(one.queue, "queues") if one.queue else NONE,
            one.stage,
            f"{one.compute} %",
            "unknown" if one.used_compute is None else f"{one.used_compute} %",
            gib(one.memory),
            gib(one.used_memory),
            "yes" if one.whole else "no",
            heads=heads,
            numbers=numbers,
        )
        for one in gpu.slices
    }
    pieces = (
        Region(name="gpu", children=facts),
        *table("Slices of this GPU", heads, Region(name="slices", element="tbody", children=rows), numbers=numbers),
    )
    return View(title=f"GPU {gpu.index} of {node}", section="cluster", pieces=pieces)


def _facts(gpu: GpuShown) -> list[Html]:
    health = gpu.health + (f": {gpu.reason}" if gpu.reason else "")
    # Who asked for all compute has the card alone, whatever memory that leaves.
    alone = "0 (alone)" if any(one.whole for one in gpu.slices) else ""
    told = (
        ("Node", link(gpu.node, "nodes", gpu.node)),
        ("Model", gpu.model),
        ("UUID", gpu.uuid),
        ("Health", health),
        ("Memory", gib(gpu.size)),
        ("Isolation", ", ".join(gpu.isolation)),
        ("Free compute", alone or f"{max(0, gpu.whole - gpu.compute)} %"),
        ("Free memory", alone or gib(max(0, gpu.size - gpu.memory))),
    )
    return [join(tag("dt", name), tag("dd", value)) for name, value in told]
