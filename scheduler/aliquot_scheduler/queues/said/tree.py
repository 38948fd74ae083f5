"""All queues as one tree: checked as a whole, and made ready for counting.

Everything that can be counted is one dimension: compute and memory of GPUs, both again for each model that some queue
names, CPU and memory of hosts. A node of the tree knows for each dimension what it is guaranteed, what it may never
exceed, and what it keeps even when idle, so that counting is the same for all of them.

A tree with contradictions is still one that can be worked with, since a queue may be edited where no webhook looks:
a queue that hangs on nothing is left out with all below it, a limit beats a guarantee, and a parent whose children are
guaranteed more than itself is guaranteed that much; where a limit forbids that, the children's guarantees are cut in
proportion. So in a planted tree no queue is guaranteed more than its parent. What is wrong is told each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor

import msgspec

from aliquot_core.hosts import quantity
from aliquot_scheduler.queues.said.dues import Hardware, dues_of, kept_of, with_reservations
from aliquot_scheduler.queues.said.guarantees import Guarantees
from aliquot_scheduler.queues.said.hanging import children_of, downwards, fault_of
from aliquot_scheduler.queues.said.nesting import within
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.said.things import ALL_CARDS, KINDS, Thing, patterns_of, quota_of, things_of

# The root's name can't be a queue's.
ROOT = ""
# Where pods wait that no queue was made for.
DEFAULT_QUEUE = "default"
UNLIMITED = 2**60

COMPUTE, MEMORY = 0, 1
_FIRST_MODEL = 2

Vector = tuple[int, ...]


class Dimensions(msgspec.Struct, frozen=True, kw_only=True):
    """What is counted, in this order: compute, memory, the same for each model, CPU (1/1000), host memory (bytes)."""

    models: tuple[str, ...] = ()

    @property
    def cards(self) -> int:
        """How many of them are about GPUs; the others have limits alone."""
        return _FIRST_MODEL + 2 * len(self.models)

    def model_of(self, dimension: int) -> str:
        """The pattern of models that one is about; that of all cards also if it is about hosts."""
        return self.models[(dimension - _FIRST_MODEL) // 2] if _FIRST_MODEL <= dimension < self.cards else ALL_CARDS

    def thing_of(self, dimension: int) -> Thing:
        """What one that is about GPUs counts."""
        return Thing(self.model_of(dimension), KINDS[dimension % 2])

    def __len__(self) -> int:
        return self.cards + 2

    @property
    def names(self) -> tuple[str, ...]:
        """What people call them."""
        of_models = (f"{kind} of {model}" for model in self.models for kind in KINDS)
        return (*KINDS, *of_models, "CPU", "host memory")


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in the tree; each tuple has one entry for each dimension."""

    name: str
    # From itself up to the root.
    path: tuple[str, ...]
    children: tuple[str, ...]
    guarantee: Vector
    # What it may never exceed, by its limit or by how much it may borrow.
    ceiling: Vector
    # What it keeps of its guarantee even when idle; and whether that only goes along with a reservation.
    kept: Vector
    implied: tuple[bool, ...]
    weight: Vector
    # Its guarantee, and what goes with it in dimensions of GPUs of which it says nothing (`dues.py`).
    due: Vector
    # Its guarantee as far as it, or one below, says it: without what only goes along with a reservation.
    said: Vector
    priority: int = 0
    # Its own word or the nearest above: a held queue holds all below it.
    stop: str = ""
    spec: QueueSpec = QueueSpec()


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """All queues that can be used."""

    dimensions: Dimensions
    nodes: dict[str, Node]
    # No Queue was made: there is `default` alone, nobody goes for others in it, and so who may never be evicted needs
    # no guarantee there.
    queueless: bool
    # For each dimension those that it lies within (`nesting.py`): whoever uses of it uses as much of them.
    within: tuple[Vector, ...]

    def path(self, name: str) -> tuple[str, ...]:
        """From the queue up to the root; a queue that is not known any more counts for the root alone."""
        node = self.nodes.get(name)
        return node.path if node else (ROOT,)

    def counts(self, name: str, model: str) -> bool:
        """Whether the queue, or one above it, limits or guarantees anything of a model."""
        dims = [dim for dim in range(self.dimensions.cards) if self.dimensions.model_of(dim) == model]
        nodes = [self.nodes[one] for one in self.path(name)]
        return any(node.ceiling[dim] < UNLIMITED or node.guarantee[dim] for node in nodes for dim in dims)

    def leaf(self, name: str) -> Node | None:
        """The queue, if pods may wait in it."""
        node = self.nodes.get(name)
        return None if node is None or node.children or name == ROOT else node

    def stopper(self, node: Node) -> str:
        """The queue on the way up whose own word stops this one."""
        return next((name for name in node.path if name != ROOT and self.nodes[name].spec.stop == node.stop), node.name)


def models_of(specs: Mapping[str, QueueSpec]) -> tuple[str, ...]:
    """The patterns of models that any of them names."""
    return tuple(sorted({model for spec in specs.values() for model in spec.models}))


def plant(specs: Mapping[str, QueueSpec], *, hardware: Hardware = Hardware()) -> Tree:  # noqa: B008 - frozen
    """Make the tree of all queues that hang together; contradictions.py says what is wrong with the others."""
    specs = dict(sorted(specs.items()))
    lost = {name for name in specs if fault_of(name, specs)}
    good = {name: spec for name, spec in specs.items() if name not in lost}
    if DEFAULT_QUEUE not in specs:
        good[DEFAULT_QUEUE] = QueueSpec()
    dimensions = Dimensions(models=models_of(good))
    children = children_of(good, root=ROOT)
    order = downwards(children, root=ROOT)
    patterns = patterns_of(dimensions.models)
    inside = within(patterns, kinds=hardware.kinds)
    written = {name: _written(good, name, dimensions) for name in order}
    as_said = Guarantees(order=order, children=children, quotas=written, within=inside)
    cut = {name: _cut(quotas, as_said.granted[name]) for name, quotas in written.items()}
    reserved = with_reservations(cut, children=children, patterns=patterns, hardware=hardware)
    # Cut by reservations too, and from what is written: what was cut twice would be rounded twice.
    quotas = {name: _but(reserved[name], unless=cut[name], as_written=words) for name, words in written.items()}
    guarantees = Guarantees(order=order, children=children, quotas=quotas, within=inside)
    granted = {name: tuple(amounts) for name, amounts in guarantees.granted.items()}
    said = _said(order, children=children, written=cut, guarantees=granted)
    nodes = {
        name: _node(
            name,
            good,
            children=children[name],
            guarantee=granted[name],
            ceiling=[guarantees.ceiling(name, dim) for dim in range(dimensions.cards)],
            quotas=quotas[name],
            written=cut[name],
            due=_due(said[name], guarantee=granted[name], models=dimensions.models, hardware=hardware),
            said=said[name],
        )
        for name in sorted(order)
    }
    stopped = {name: _stopped(node, nodes) for name, node in nodes.items()}
    return Tree(dimensions=dimensions, nodes=stopped, queueless=not specs, within=(*inside, (), ()))


# --- how a node is made ----------------------------------------------------------------------------------------------
def _path(name: str, specs: Mapping[str, QueueSpec]) -> tuple[str, ...]:
    path = [name]
    while path[-1] != ROOT:
        path.append(specs[path[-1]].parent)
    return tuple(path)


def _written(specs: Mapping[str, QueueSpec], name: str, dimensions: Dimensions) -> list[Quota]:
    """A queue's quotas in the order of the dimensions of GPUs."""
    spec = specs.get(name, QueueSpec())
    return [quota_of(spec, thing) for thing in things_of(dimensions.models)]


def _cut(quotas: Sequence[Quota], granted: Sequence[int]) -> list[Quota]:
    """What reservations take along is worked out by what is really guaranteed."""
    return [
        msgspec.structs.replace(quota, guarantee=least) if (quota.guarantee or 0) > least else quota
        for quota, least in zip(quotas, granted, strict=True)
    ]


def _but(reserved: Sequence[Quota], *, unless: Sequence[Quota], as_written: Sequence[Quota]) -> list[Quota]:
    """What a reservation takes along, and else what is written."""
    return [
        words if taken is before else taken for taken, before, words in zip(reserved, unless, as_written, strict=True)
    ]


def _said(
    order: Sequence[str],
    *,
    children: Mapping[str, list[str]],
    written: Mapping[str, list[Quota]],
    guarantees: Mapping[str, Vector],
) -> dict[str, list[bool]]:
    """Of which guarantees each says something; what is guaranteed because children are is said as well, by them."""
    found: dict[str, list[bool]] = {}
    for name in reversed(order):
        found[name] = [
            quota.guarantee is not None or any(found[child][dim] and guarantees[child][dim] for child in children[name])
            for dim, quota in enumerate(written[name])
        ]
    return found


def _due(said: Sequence[bool], *, guarantee: Vector, models: Sequence[str], hardware: Hardware) -> Vector:
    found = dues_of(guarantee, said, models=models, hardware=hardware)
    return (*map(max, found, guarantee), 0, 0)


def _node(
    name: str,
    specs: Mapping[str, QueueSpec],
    *,
    children: Sequence[str],
    guarantee: Vector,
    ceiling: Sequence[int | None],
    quotas: Sequence[Quota],
    written: Sequence[Quota],
    due: Vector,
    said: Sequence[bool],
) -> Node:
    spec = specs.get(name, QueueSpec())
    implied = [
        quota.lending_limit is not None and word.lending_limit is None
        for quota, word in zip(quotas, written, strict=True)
    ]
    own = zip(guarantee, quotas, implied, strict=True)
    kept = [_kept(part, quota, implied=along) for part, quota, along in own]
    kept = [
        _cut_along(most, kept[dim ^ 1], of=kept_of(written[dim ^ 1])) if implied[dim] else most
        for dim, most in enumerate(kept)
    ]
    return Node(
        name=name,
        path=_path(name, specs),
        children=tuple(children),
        guarantee=(*guarantee, 0, 0),
        ceiling=(
            *(UNLIMITED if most is None else most for most in ceiling),
            *(_host_limit(text) for text in (_milli(spec), spec.hosts.memory)),
        ),
        kept=(*kept, 0, 0),
        implied=(*implied, False, False),
        weight=(*(quota.weight for quota in quotas), 1, 1),
        due=due,
        said=(*(part if told else 0 for part, told in zip(guarantee, said, strict=True)), 0, 0),
        priority=spec.priority,
        stop=spec.stop,
        spec=spec,
    )


def _cut_along(kept: int, reserved: int, *, of: int) -> int:
    """What only goes along with a reservation is cut as that is; compute and memory stand side by side."""
    return min(kept, kept * reserved // of) if of else kept


def _kept(guarantee: int, quota: Quota, *, implied: bool) -> int:
    """What goes along with a reservation is kept as it is, however much more of that the children are guaranteed."""
    if quota.lending_limit is None:
        return 0
    if implied:
        return min(guarantee, quota.guarantee or 0)
    return max(0, guarantee - quota.lending_limit)


def _milli(spec: QueueSpec) -> Fraction | None:
    cpu = spec.hosts.cpu
    return None if cpu is None else 1000 * quantity(cpu, where="spec.hosts.cpu")


def _host_limit(written: Fraction | str | int | None) -> int:
    if written is None:
        return UNLIMITED
    exact = written if isinstance(written, Fraction) else quantity(written, where="spec.hosts")
    return min(UNLIMITED, floor(exact))


def _stopped(node: Node, nodes: Mapping[str, Node]) -> Node:
    words = [nodes[name].stop for name in node.path]
    stop = "drain" if "drain" in words else "hold" if "hold" in words else ""
    return node if stop == node.stop else msgspec.structs.replace(node, stop=stop)
