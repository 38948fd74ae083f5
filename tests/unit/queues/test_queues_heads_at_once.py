"""Many heads have lost patience, and what is kept for them comes free at once."""

from __future__ import annotations

from aliquot_scheduler.queues.said.settings import QueueSettings
from support.queue_stage import Stage, queue
from support.steps import steps_of

SETTINGS = QueueSettings(patience=10.0, hold=1_000.0)


def all_in(heads: int) -> int:
    """In how many steps so many come in, each of a queue of its own and with a node of its own."""
    specs = {f"q{number}": queue() for number in range(heads)} | {"others": queue()}
    stage = Stage(specs, nodes=(2,) * heads, settings=SETTINGS)
    for number in range(heads):
        stage.submit(f"runs{number}", 200, queue="others")
    assert len(stage.run()) == heads
    for number in range(heads):
        stage.submit(f"head{number}", 200, queue=f"q{number}", user=f"u{number}")
    assert stage.run() == []
    for _ in range(heads // 8 + 5):
        assert stage.run(after=2.0) == []
    assert len({node for nodes in stage.queues.register.memory.kept(now=stage.now).values() for node in nodes}) == heads
    stage.end(*[f"runs{number}" for number in range(heads)])
    found: list[str] = []
    steps = steps_of(lambda: found.extend(stage.round(after=1.0)))
    assert sorted(found) == sorted(f"head{number}" for number in range(heads))
    return steps


def test_heads_whose_nodes_come_free_together_do_not_cost_each_other() -> None:
    """Of 200 of them each one that came in had all the others looked at anew, which took seconds."""
    few, many = all_in(10), all_in(40)
    assert many < 6 * few, (few, many)


def test_what_a_head_leaves_of_its_node_is_others_at_once() -> None:
    """They were passed over for it before it came in, in the same round."""
    stage = Stage({"a": queue(), "b": queue(), "c": queue()}, settings=SETTINGS)
    stage.submit("runs", 400, queue="b")
    assert stage.run() == ["runs"]
    stage.submit("head", 300, queue="c")
    assert stage.run() == []
    assert stage.run(after=20.0) == []
    stage.submit("small", 100, queue="a")
    assert stage.run(after=1.0) == []
    stage.end("runs")
    assert stage.run(after=1.0) == ["head", "small"]
