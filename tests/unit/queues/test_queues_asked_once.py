"""What a group asks is worked out once for all of it, however many they are: not once for each of its pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from aliquot_scheduler.queues.judging.elsewhere import admissible
from aliquot_scheduler.queues.judging.enrolment import Enrolment
from aliquot_scheduler.queues.waiting.waiter import Waiter
from support.centre import gpus, make_node
from support.growing import go, lifted, shown
from support.queue_stage import Stage, queue


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often it was worked out whether a group can start, and who of it may be shown by quota."""
    count = Counter[str]()
    why_never = Enrolment.why_gang_never

    def counted(of: Enrolment, members: Sequence[Waiter]) -> str:
        count["can start"] += 1
        return why_never(of, members)

    def judged(*of: object, **by: object) -> object:
        count["has quota"] += 1
        return admissible(*of, **by)  # type: ignore[arg-type]

    monkeypatch.setattr(Enrolment, "why_gang_never", counted)
    monkeypatch.setattr("aliquot_scheduler.queues.letting_in.showing.admissible", judged)
    return count


def of_group(pods: int, *, minimum: int, limit: int | None = None, autoscale: bool = True) -> Stage:
    """A group that waits as a whole."""
    stage = Stage({"c": queue(limit=limit, autoscale=autoscale), "b": queue()}, nodes=(4,))
    notes = {"group-size": str(pods), "group-min": str(minimum)}
    for number in range(pods):
        stage.submit(f"c{number:02}", queue="c", group="g", notes=notes)
    return stage


def test_while_it_is_found_who_is_shown(asked: Counter[str]) -> None:
    """They go out of their line for that and come back, of 40 as of 10."""
    looks = []
    for pods in (10, 40):
        stage = of_group(pods, minimum=pods)
        asked.clear()
        assert len(stage.round()) == pods == len(shown(stage))
        looks.append(Counter(asked))
    assert looks == [{"can start": 1, "has quota": 1}] * 2


def test_of_an_elastic_one_as_well(asked: Counter[str]) -> None:
    """Four start, and each of the others is shown by itself: all come back to their line at once."""
    stage = of_group(40, minimum=4)
    stage.submit("x", 400, queue="b", priority=1)
    asked.clear()
    assert len(go(stage)) == 1 + 40 == 1 + len(shown(stage))
    assert asked == {"can start": 37, "has quota": 37}


def test_when_their_gates_are_lifted(asked: Counter[str]) -> None:
    """The watch tells of each; nothing is asked otherwise by that."""
    stage = of_group(40, minimum=40)
    found = stage.round()
    asked.clear()
    stage.lift(*found)
    assert len(lifted(stage)) == 40
    assert not asked


def test_when_a_node_comes(asked: Counter[str]) -> None:
    """Of a group that could not start it is looked at once whether it can by now."""
    stage = of_group(6, minimum=6, autoscale=False)
    asked.clear()
    stage.picture.node_seen(make_node("n1", gpus("n1", 1)))
    stage.queues.register.tell_time(stage.now)
    assert asked["can start"] == 1
    stage.picture.node_seen(make_node("n2", gpus("n2", 1)))
    assert len(stage.run()) == 6


def test_while_it_is_put_out(asked: Counter[str]) -> None:
    """Its quota is another one's: that it has none is found once as one that was shown, and once as one to be shown."""
    stage = of_group(40, minimum=40, limit=4_000)
    assert len(go(stage)) == 40
    stage.submit("first", queue="c", priority=1)
    asked.clear()
    assert go(stage) == ["first"]
    assert shown(stage) == []
    assert asked["has quota"] == 2


def test_a_word_on_a_pod_counts_that_changes_what_it_asks() -> None:
    """It goes over to another queue: what is left of its group can't start any more, and is not shown."""
    stage = of_group(6, minimum=6)
    stage.round()
    assert len(shown(stage)) == 6
    stage.submit("c00", queue="b", group="g", notes={"group-size": "6", "group-min": "6"})
    stage.round()
    assert shown(stage) == []
