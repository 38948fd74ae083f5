"""What the leader tells Prometheus: numbers of a known picture, and nothing where it does not lead."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from aliquot_scheduler.centre.metrics import CentreCollector
from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.picture.signs import SILENT, UNHEARD
from aliquot_scheduler.queues.lost.doubts import Kept
from aliquot_scheduler.queues.telling.status import Amounts, QueueStatus
from aliquot_scheduler.rules.judging import Rules
from aliquot_scheduler.rules.limit import RuleTooSlowError
from aliquot_scheduler.rules.rule import NodeFacts, PodFacts
from support.centre import MEMORY, asks, bound, counting, gpus, make_node
from support.reigns import known_reign

MIB = 1024 * 1024


@pytest.fixture
def reign() -> Reign:
    """A leader of a known cluster."""
    return known_reign()


def registered(reign: Reign | None) -> CollectorRegistry:
    """A registry that scrapes this leader, or one who does not lead."""
    registry = CollectorRegistry()
    registry.register(CentreCollector(reign=lambda: reign, leads=lambda: reign is not None))
    return registry


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("leader", {}, 1.0),
        ("deciding", {}, 0.0),
        ("nodes", {"state": "in"}, 1.0),
        ("nodes", {"state": "out"}, 0.0),
        ("nodes", {"state": "unheard"}, 0.0),
        ("nodes", {"state": "cordoned"}, 1.0),
        ("gpus", {}, 4.0),
        ("compute_free_gpus", {}, 0.5 + 0.25 + 0.0 + 1.0),
        ("memory_free_bytes", {}, (0.75 + 1.0) * MEMORY * MIB),
        ("compute_stranded_gpus", {}, 0.5),
        ("memory_stranded_bytes", {}, 0.5 * MEMORY * MIB),
        ("promises", {"stage": "offered"}, 0.0),
        ("waiting_pods", {}, 1.0),
        ("clearings", {}, 0.0),
        ("turns_missed_total", {"said": "nothing"}, 0.0),
        ("turns_missed_total", {"said": "unschedulable"}, 0.0),
        ("unheard_pods", {}, 0.0),
        ("ungranted_pods", {}, 0.0),
        ("evictions_by_priority_total", {}, 0.0),
        ("preemptions_refused_total", {"why": "asks for slices"}, 0.0),
        ("preemptions_refused_total", {"why": "they have slices"}, 0.0),
        ("preemptions_refused_total", {"why": "blind"}, 0.0),
    ],
)
def test_each_figure_is_what_the_picture_says(reign: Reign, name: str, labels: dict[str, str], value: float) -> None:
    """A GPU given whole has nothing free, whatever memory was asked; a cordoned node's GPUs don't count."""
    found = registered(reign).get_sample_value(f"aliquot_centre_{name}", labels)
    assert found == pytest.approx(value)


def test_a_wrong_clock_is_told_by_whoever_does_not_lead_too() -> None:
    """Once it is known: of what was not asked yet nobody says that it is right."""
    known: list[float | None] = [None]
    registry = CollectorRegistry()
    registry.register(CentreCollector(reign=lambda: None, leads=lambda: False, ahead=lambda: known[0]))
    assert registry.get_sample_value("aliquot_centre_clock_skew_seconds") is None
    known[0] = -90.5
    assert registry.get_sample_value("aliquot_centre_clock_skew_seconds") == -90.5


def test_pods_whose_scheduler_never_asks_are_counted_as_the_queues_do(
    reign: Reign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that number an alert begins."""
    monkeypatch.setattr(reign.turns.register.lost_turns, "unheard_pods", lambda: 3)
    assert registered(reign).get_sample_value("aliquot_centre_unheard_pods") == 3


def test_pods_that_are_bound_without_a_grant_are_counted_on_all_nodes(reign: Reign) -> None:
    """By that number an alert begins, and ends when they are deleted."""
    strays = [asks(f"s{at}", 10, 1_000, spec={"nodeName": node}) for at, node in enumerate(("n1", "n1", "gone"))]
    for stray in strays:
        reign.picture.pod_seen(stray)
    assert registered(reign).get_sample_value("aliquot_centre_ungranted_pods") == 3
    for stray in strays:
        reign.picture.pod_gone(stray)
    assert registered(reign).get_sample_value("aliquot_centre_ungranted_pods") == 0


@pytest.mark.parametrize(
    ("compute", "memory", "free", "stranded"),
    [
        # Of 400 % three pods hold 225; of four cards' memory one and a quarter, and 1,000 MiB.
        (100, 1_000, (0.75, 1.75), 0.5 * 0.75 / 1.75),
        (175, 1_000, (0.0, 1.75), 0.0),
        # The memory of the card that one has alone is left too, for kube-scheduler, and nobody gets it.
        (10, 2 * MEMORY, (1.65, 0.75), 0.5 * 1.65 / 1.75 + 1.65 / 1.75 - 0.75 / 1.75),
    ],
)
def test_what_a_pod_without_a_grant_takes_is_not_told_as_free(
    reign: Reign, compute: int, memory: int, free: tuple[float, float], stranded: float
) -> None:
    """It lies on no GPU, and kube-scheduler gives nobody what it asks of its node."""
    reign.picture.node_seen(counting(make_node("n1", gpus("n1", 4))))
    reign.picture.pod_seen(asks("stray", compute, memory, spec={"nodeName": "n1"}))
    told = registered(reign)
    cards = told.get_sample_value("aliquot_centre_memory_free_bytes")
    assert cards is not None
    # But for the 1,000 MiB of one who has his card alone.
    assert cards / (MEMORY * MIB) == pytest.approx(free[1], abs=0.02)
    assert told.get_sample_value("aliquot_centre_compute_free_gpus") == pytest.approx(free[0])
    assert told.get_sample_value("aliquot_centre_compute_stranded_gpus") == pytest.approx(stranded, abs=0.02)


OF_A_QUEUE = {
    "used_compute_gpus": 2.5,
    "used_memory_bytes": 9 * MIB,
    "borrowed_compute_gpus": 0.75,
    "borrowed_memory_bytes": 4 * MIB,
    "fair_share_compute_gpus": 3.0,
    "fair_share_memory_bytes": 7 * MIB,
    "asked_compute_gpus": 1.2,
    "asked_memory_bytes": 5 * MIB,
    "lately_compute_gpus": 0.1,
    "lately_memory_bytes": 3 * MIB,
    "waiting_pods": 6,
    "wait_seconds_count": 2,
    "wait_seconds_sum": 42.0,
}


def test_each_figure_of_a_queue_is_what_its_status_says(reign: Reign) -> None:
    """In GPUs and bytes; of waits how many there were, and how long all of them together."""
    reign.clerks.queue_writer.latest = {
        "a": QueueStatus(
            used=Amounts(compute=250, memory=9),
            borrowed=Amounts(compute=75, memory=4),
            fair_share=Amounts(compute=300, memory=7),
            asked=Amounts(compute=120, memory=5),
            lately=Amounts(compute=10, memory=3),
            waiting=6,
        )
    }
    for seconds in (12.0, 30.0):
        reign.turns.waits.add("a", seconds)
    told = registered(reign)
    found = {name: told.get_sample_value(f"aliquot_queue_{name}", {"queue": "a"}) for name in OF_A_QUEUE}
    assert found == pytest.approx(OF_A_QUEUE)
    assert told.get_sample_value("aliquot_queue_used_compute_gpus", {"queue": "b"}) is None


def test_what_could_not_be_told_is_counted_by_what_it_is_of(reign: Reign) -> None:
    """Nothing by then; and of each of those who write, whatever it was that failed."""
    clerks, sorts = reign.clerks, ("pod", "node", "queue", "view")
    assert clerks.in_vain

    def untold() -> list[float | None]:
        told = registered(reign)
        return [told.get_sample_value("aliquot_centre_untold_total", {"of": sort}) for sort in sorts]

    assert untold() == [0.0] * 4
    for parts in (
        (clerks.notices._wordless, clerks.notices._untold, clerks.over_use._unjudged, clerks.nodes._untold),
        (clerks.over_use_words._untold, clerks.beside._untaken, clerks.beside._unwritten, clerks.in_vain._untold),
        (clerks.queue_writer._statusless, clerks.queue_writer._unjudged, clerks.queue_writer._unwritten),
        (clerks.queue_writer._unread,),
        (clerks.views._unmade, clerks.views._unwritten, clerks.views._unwritten, clerks.views._unwritten),
    ):
        for part in parts:
            part.failed("one", KeyError("word"), of="one")
    assert untold() == [7.0, 1.0, 4.0, 4.0]


def test_who_waits_is_counted_by_the_word_in_the_conditions(reign: Reign) -> None:
    """As of the last look of whoever writes those."""
    reign.clerks.notices.reasons.update({("a", "NoRoom"): 3, ("a", "OverLimit"): 1})
    told = registered(reign)
    for reason, count in (("NoRoom", 3.0), ("OverLimit", 1.0), ("HeldBack", None)):
        labels = {"queue": "a", "reason": reason}
        assert told.get_sample_value("aliquot_queue_waiting_for_pods", labels) == count


def test_users_in_doubt_are_counted_by_their_queue(reign: Reign) -> None:
    """One whose turn was cut short is none yet."""
    doubts = reign.turns.register.lost_turns.doubts
    for user, lasted in (("u", 30.0), ("v", 30.0), ("w", 1.0)):
        kept = Kept(amounts=(100, 1000), part=0.1, lasted=lasted)
        doubts.came_to_nothing(("a", user), kept, pod=f"{user}/bad", again=False, now=30.0)
    told = registered(reign)
    assert told.get_sample_value("aliquot_queue_users_in_doubt", {"queue": "a"}) == 2.0
    assert told.get_sample_value("aliquot_queue_users_in_doubt", {"queue": "b"}) is None


def test_a_node_that_nobody_can_hear_is_not_out(reign: Reign) -> None:
    """Nobody is woken for each of them: that the API server is silent is told by itself."""
    known = next(known for known in reign.picture.nodes.values() if not known.out)
    for out, counts in ((UNHEARD, (0.0, 1.0)), (SILENT, (1.0, 0.0))):
        known.out = out
        told = registered(reign)
        states = [told.get_sample_value("aliquot_centre_nodes", {"state": state}) for state in ("out", "unheard")]
        assert tuple(states) == counts


def test_pods_that_were_asked_to_go_are_counted_by_why_and_what_came_of_it(reign: Reign) -> None:
    """For others, for what they use, and for what has become of their group."""
    clerks = reign.clerks
    clerks.evictor.evicted, clerks.evictor.kept, clerks.evictor.moved = 1, 2, 3
    clerks.evictor.against_budgets = 6
    clerks.over_use.evicted, clerks.gangs.evicted, clerks.by_priority.count = 4, 5, 7
    told = registered(reign)
    outcomes = {
        "taken": 1.0,
        "taken against a disruption budget": 6.0,
        "kept": 2.0,
        "taken to be placed elsewhere": 3.0,
    }
    assert {
        outcome: told.get_sample_value("aliquot_centre_evictions_total", {"outcome": outcome}) for outcome in outcomes
    } == outcomes
    causes = {"over-use": 4.0, "broken group": 5.0}
    assert {
        cause: told.get_sample_value("aliquot_centre_evictions_for_cause_total", {"cause": cause}) for cause in causes
    } == causes
    assert told.get_sample_value("aliquot_centre_evictions_by_priority_total") == 7.0
    # What the page shows is the same.
    assert list(clerks.evicted().values()) == [1, 6, 3, 4, 5, 7]


def test_each_rule_is_told_of(reign: Reign) -> None:
    """Whether it is asked, and how often it was of no use: nobody else notices that pods are placed without it."""
    assert not [family for family in registered(reign).collect() if "rule" in family.name and family.samples]

    def slow(*_: object) -> None:
        raise RuleTooSlowError("it took longer", where="rule", remedy="do less in it")

    rules = Rules({"good": lambda *_: None, "slow": slow})
    for _ in range(4):
        rules.judge(PodFacts(), [NodeFacts(name="n1")])
    told = registered(known_reign(rules=rules))
    for name, figures in (("rule_failures_total", (0.0, 3.0)), ("rules_set_aside", (0.0, 1.0))):
        found = [told.get_sample_value(f"aliquot_centre_{name}", {"rule": rule}) for rule in ("good", "slow")]
        assert tuple(found) == figures


def test_a_node_that_nobody_cordoned_is_out(reign: Reign) -> None:
    """Its agent is silent; a cordoned one is cordoned whatever its agent says."""
    for name, cordoned in (("n3", False), ("n4", True)):
        reign.picture.node_seen(make_node(name, gpus(name, 1), cordoned=cordoned))
    told = registered(reign)
    states = {one: told.get_sample_value("aliquot_centre_nodes", {"state": one}) for one in ("in", "out", "cordoned")}
    assert states == {"in": 1.0, "out": 1.0, "cordoned": 2.0}


def test_who_does_not_lead_says_only_that() -> None:
    """Or sums over replicas would count twice."""
    families = list(registered(None).collect())
    assert [family.name for family in families] == ["aliquot_centre_leader"]


def test_who_uses_more_than_granted_is_counted_at_his_queue(reign: Reign, monkeypatch: pytest.MonkeyPatch) -> None:
    """By how far it has come; of pods that nobody knows or charges nothing is said, and nothing where nobody asks."""
    charged = bound(asks("u1", 50, MEMORY), node="n1", held={"GPU-n1-0": (50, MEMORY)})
    reign.turns.pod_seen(charged)
    monkeypatch.setattr(Reign, "pods", {charged.key: charged, "team/pod-free": asks("free", 10, 1)})
    told = [(charged.key, "warn"), (charged.key, "warn"), ("team/pod-free", "note"), ("team/pod-gone", "note")]
    registry = CollectorRegistry()
    registry.register(CentreCollector(reign=lambda: reign, leads=lambda: True, over_use=lambda: told))
    charge = reign.turns.books.ledger.of("u1")
    assert charge is not None
    counted = [one for family in registry.collect() if "over_use" in family.name for one in family.samples]
    assert [(one.labels, one.value) for one in counted] == [({"queue": charge.queue, "rung": "warn"}, 2.0)]
    assert not [family for family in registered(reign).collect() if "over_use" in family.name]
