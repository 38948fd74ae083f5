"""Why a pod waits is the same word wherever it is said, at each step of all scenario tables.

Conditions are written later and at a bounded pace: compared is what is due to stand there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec
import pytest

from aliquot_core.objects import Namespace, Pod, PodCondition, Queue
from aliquot_scheduler.explaining import Explanation, explain
from aliquot_scheduler.page.waiters import waiting_shown
from aliquot_scheduler.queues.said.entry import Plan, plan_of
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.telling.forms import WaitingPod
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.views import views
from aliquot_scheduler.queues.telling.whole import waiting_pods
from aliquot_scheduler.queues.waiting.showings import written as since_when
from aliquot_scheduler.queues.waiting.waiter import Waiter
from aliquot_scheduler.reclaim.inquiry import Inquiry
from support.centre import NAMES, WALL, make_lease, picture_with
from support.queue_scenarios import SCENARIOS, Scenario, Spec, said_now
from support.queue_stage import Stage
from support.reclaim_scenarios import RECLAIMS
from support.reclaim_stage import A_WHILE, ReclaimStage, submit

replace = msgspec.structs.replace


def written(stage: Stage, pod: Pod) -> Pod:
    """The pod as the API server has it once the leader has written all that is due on it."""
    uid = pod.metadata.uid
    if (waiter := stage.queues.register.hall.find(uid)) is not None:
        notice = stage.queues.notice(waiter)
        said = PodCondition(type=NAMES.admitted, status="False", reason=notice.reason, message=notice.message)
        # Of the pods that wait those have no gate that were shown to an autoscaler.
        turn = stage.turns.get(uid)
        gates = [] if turn else pod.spec.scheduling_gates
        shown = (
            {NAMES.shown: since_when(wall=WALL + stage.now, times=turn.shown, queue=turn.queue)}
            if turn and turn.shown
            else {}
        )
        return replace(
            pod,
            metadata=replace(pod.metadata, annotations=pod.metadata.annotations | shown),
            spec=replace(pod.spec, scheduling_gates=gates),
            status=replace(pod.status, conditions=[said]),
        )
    promise = stage.turns[uid].promise if uid in stage.turns and not pod.spec.node_name else None
    if promise is None:
        return pod
    noted = replace(
        pod.metadata,
        annotations=pod.metadata.annotations | {NAMES.promised: " ".join((promise.node, *promise.plan.claims))},
    )
    return replace(pod, metadata=noted, spec=replace(pod.spec, scheduling_gates=[]))


class Seen:
    """What the API server has of a stage, and what may be read from it."""

    def __init__(self, stage: Stage, plan: Plan) -> None:
        self.stage, self.plan = stage, plan
        self.pods = [written(stage, pod) for pod in stage.pods.values()]
        self.nodes = [known.node for known in stage.picture.nodes.values()]

    def standing(self) -> Standing:
        """Where everybody stands, to who may read it all."""
        picture = picture_with(*self.nodes)
        for pod in self.pods:
            picture.pod_seen(pod)
        return Standing(picture=picture, plan=self.plan, pods=self.pods, names=NAMES, wall=WALL)

    def told(self) -> dict[str, tuple[str, str]]:
        """By pod, the word and the sentence of `aliquot queue`."""
        leaves = [name for name, node in self.plan.tree.nodes.items() if not node.children and name]
        found = [one for name in leaves for one in self._of(name)]
        return {one.pod: (one.reason, one.why) for one in found}

    def _of(self, queue: str) -> list[WaitingPod]:
        standing = self.standing()
        return waiting_pods(queue, standing, due=Inquiry(standing, wall=WALL).why)

    def explained(self, key: str) -> str:
        """The word of `aliquot explain`."""
        return self.explanation(key).reason

    def explanation(self, key: str) -> Explanation:
        """All of it."""
        (pod,) = (one for one in self.pods if one.key == key)
        leases = [make_lease(name) for name in self.stage.picture.nodes]
        return explain(pod, nodes=self.nodes, leases=leases, pods=self.pods, names=NAMES, wall=WALL, plan=self.plan)


def agree(stage: Stage, plan: Plan) -> Counter[str]:
    """The words of all who wait, once it is seen that everybody says the same."""
    seen, waiting = Seen(stage, plan), stage.queues.waiting()
    promised = {uid for uid, turn in stage.turns.items() if turn.promise}
    neither = {uid for uid, pod in stage.pods.items() if not pod.spec.node_name and uid not in promised}
    assert neither <= {waiter.uid for waiter in waiting}
    due = {waiter.pod.key: stage.queues.notice(waiter) for waiter in waiting}
    told = seen.told()
    listed = {waiter.pod.key for waiter in waiting if waiter.queue in plan.tree.nodes}
    assert {pod: word for pod, (word, _) in told.items()} == {pod: due[pod].reason for pod in listed}
    # For whom room is being made rests, and others' numbers are without what it asks; only the leader keeps that.
    alike = listed if not len(stage.queues.register.clearings) else set[str]()
    for pod, notice in due.items():
        # What comes after is what others have borrowed of what it is guaranteed.
        assert pod not in alike or told[pod][1].startswith(notice.message)
        assert seen.explained(pod) == notice.reason
    assert shown_to_namespaces(stage) == by_namespace(waiting, stage)
    return Counter(notice.reason for notice in due.values())


def by_namespace(waiting: list[Waiter], stage: Stage) -> dict[tuple[str, str], Counter[str]]:
    """How many wait for what, by namespace and queue."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for waiter in waiting:
        word = stage.queues.notice(waiter).reason
        found.setdefault((waiter.pod.metadata.namespace, waiter.queue), Counter())[word] += 1
    return found


def shown_to_namespaces(stage: Stage) -> dict[tuple[str, str], Counter[str]]:
    """The same as the namespaces are shown it."""
    queues = stage.queues
    found = views(
        queues.books,
        waiting=queues.waiting(),
        statuses=queues.statuses(now=stage.now, at=""),
        homes={},
        at="",
        words=queues.words(),
    )
    return {where: Counter(view.own.reasons) for where, view in found.items() if view.own.waiting}


def plan_for(said: Mapping[str, Spec]) -> Plan:
    """The queues that say so; pods of all namespaces may name them."""
    queues = [
        msgspec.convert({"metadata": {"name": name}, "spec": {**spec, "namespaces": ["*"]}}, Queue)
        for name, spec in said.items()
    ]
    return plan_of(queues, list[Namespace](), names=NAMES)


@pytest.mark.parametrize("scenario", [*SCENARIOS, *RECLAIMS], ids=lambda one: one.name)
def test_all_say_the_same_word_at_each_step(scenario: Scenario) -> None:
    """Condition, Event, both commands, and the namespaced view; while some are promised room, and when all is still."""
    said = dict(scenario.queues)
    plan = plan_for(said)
    stage, made = ReclaimStage(plan.specs, nodes=(4,)), Counter[str]()
    words = Counter[str]()
    for step in scenario.steps:
        said = said_now(said, step)
        plan = plan_for(said)
        stage.queues.queues_seen(plan.specs)
        for pods in step.submit:
            submit(stage, pods, made)
        for queue, count in step.end.items():
            running = [uid for uid, pod in stage.pods.items() if pod.spec.node_name]
            stage.end(*[uid for uid in running if stage.pods[uid].metadata.labels[NAMES.queue] == queue][:count])
        # Until then the leader has not looked at them, and nothing is due.
        let_in = stage.round(after=1.0)
        words += agree(stage, plan)
        stage.bind(*stage.promised(let_in))
        still = False
        while not still:
            still = not stage.run(after=A_WHILE)
            clearings, asked = stage.decide(), stage.evict()
            words += agree(stage, plan)
            for uid in asked:
                stage.gone(uid)
            still = still and not clearings
    assert words or not any(any(step.waiting.values()) for step in scenario.steps)


FREE_FOR_ALL: Mapping[str, Spec] = {"red": {}, "blue": {}}


def test_what_is_promised_and_not_bound_is_said_with_its_number() -> None:
    """To who finds no room for that, by the leader and by both commands; and no more once it is bound."""
    plan = plan_for(FREE_FOR_ALL)
    stage = Stage(plan.specs, nodes=(4,))
    for number in range(4):
        stage.submit(f"r{number}", 100, queue="red")
    let_in = stage.round()
    assert len(let_in) == 4
    stage.submit("b", 50, queue="blue")
    stage.round()
    assert agree(stage, plan) == {"NoRoom": 1}
    free = "of all GPUs 0 of 400 % and 0 of 320000 MiB are free"
    promised = "400 % of compute and 320000 MiB of memory promised to 4 pods that are not bound yet"
    (waiter,) = stage.queues.waiting()
    assert f"{free}, beside {promised}" in stage.queues.notice(waiter).message
    stage.bind(*let_in)
    stage.round(after=1.0)
    assert f"{free}, and" in stage.queues.notice(waiter).message


@pytest.mark.parametrize("word", ["MakingRoom", "Behind", "NobodyGoes", "GangWaits", "TurnLost", "InDoubt"])
def test_what_only_the_leader_remembers_is_read_in_its_last_word(word: str) -> None:
    """Until it writes another one; and what hangs on numbers is worked out by those of the moment."""
    plan = plan_for(FREE_FOR_ALL)
    stage = Stage(plan.specs, nodes=(1,))
    stage.submit("r", 100, queue="red")
    stage.run()
    pod = stage.submit("b", 50, queue="blue")
    pod = replace(pod, spec=replace(pod.spec, scheduling_gates=[] if word == "TurnLost" else pod.spec.scheduling_gates))
    assert read(stage, plan, pod, said=word) == (word, "as the leader said")
    assert read(stage, plan, pod, said="HeldBack")[0] == "NoRoom"


def test_who_may_see_all_pods_is_told_the_name_that_a_tenant_is_not() -> None:
    """By the UID in the condition, in both commands and on the page; of one that is gone since, what that says."""
    plan = plan_for({"red": {}, "blue": {}})
    stage = Stage(plan.specs, nodes=(1,), settings=QueueSettings(patience=10.0, hold=100.0))
    stage.submit("ever", 60, queue="blue")
    stage.run()
    stage.submit("large", 100, queue="red", user="rival")
    stage.run()
    stage.submit("small", 40, queue="blue")
    assert stage.round(after=20.0) == []
    seen = Seen(stage, plan)
    (small,) = (pod for pod in seen.pods if pod.metadata.uid == "small")
    (condition,) = small.status.conditions
    goes_first = "it counts as 40 % of compute and 1000 MiB of memory; {} has waited for long and goes first"
    assert condition.message == goes_first.format("a pod of another namespace (queue red, UID large)")
    named = goes_first.format("rival/pod-large of queue red")
    assert seen.told()[small.key] == ("Behind", named)
    explained = seen.explanation(small.key)
    assert explained.queue is not None
    assert (explained.queue.why, explained.summary) == (named, named)
    assert on_the_page(stage)[small.key] == named
    seen.pods = [pod for pod in seen.pods if pod.metadata.uid != "large"]
    assert seen.told()[small.key] == ("Behind", condition.message)


def on_the_page(stage: Stage) -> dict[str, str]:
    """By pod, why it waits."""
    looking = waiting_shown(list(stage.queues.waiting()), stage.queues, deaf="")
    while True:
        try:
            next(looking)
        except StopIteration as done:
            return {one.pod: one.why for one in done.value[0]}


def read(stage: Stage, plan: Plan, pod: Pod, *, said: str) -> tuple[str, str]:
    """What both commands tell of one pod on which the leader has written so."""
    seen = Seen(stage, plan)
    wrote = PodCondition(type=NAMES.admitted, status="False", reason=said, message="as the leader said")
    told = replace(pod, status=replace(pod.status, conditions=[wrote]))
    seen.pods = [one for one in seen.pods if one.key != pod.key] + [told]
    (found,) = seen.told().values()
    assert seen.explained(pod.key) == found[0]
    return found


def test_whose_turn_was_taken_back_waits_for_whoever_leads_next() -> None:
    """As commands tell it by the same word: it is not charged as one that is let in."""
    stage = Stage(plan_for({"red": {"compute": {"limit": 100}}}).specs, nodes=(4,))
    # The older one first, if both were let in.
    for uid, admitted, reason in (("out", "False", "TurnLost"), ("in", "True", "LetIn")):
        pod = stage.submit(uid, 60, queue="red")
        stage.gone(uid)
        said = PodCondition(type=NAMES.admitted, status=admitted, reason=reason)
        spec = replace(pod.spec, scheduling_gates=[])
        stage.see(replace(pod, spec=spec, status=replace(pod.status, conditions=[said])))
    stage.round()
    assert [waiter.uid for waiter in stage.queues.waiting()] == ["out"]
    assert stage.used("red")[0] == 60
