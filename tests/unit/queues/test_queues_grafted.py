"""Queues that are edited while thousands wait: nobody is read anew for it, and all is as if everybody had been."""

from __future__ import annotations

import random

import pytest

from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.charged.account import Account
from aliquot_scheduler.queues.charged.portions import Portions
from aliquot_scheduler.queues.judging.enrolment import Enrolment
from aliquot_scheduler.queues.judging.planting import Planting
from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from aliquot_scheduler.queues.waiting.waiter import Waiter
from support.queue_stage import H100, Stage, queue
from support.queue_world import STEPS, QueueWorld

# Trees of their own are planted less often than queues are edited, moved and deleted.
WALKED = [step.__name__ for step, times in STEPS.items() for _ in range(times)] + ["edit"] * 8
TREE = {"o": queue(), "a": queue("o", guarantee=200), "b": queue("o"), "c": queue()}


class Edited(QueueWorld):
    """A world in which one queue is often another."""

    def edit(self) -> None:
        """One is written anew, or made."""
        name = self.chance.choice(self.queue_names)
        self.specs = self.specs | {name: self._spec(name)}
        self.queues.queues_seen(self.specs)


def numbers_of(account: Account) -> dict[str, object]:
    """All of them; of those who demand a guarantee how many of each size."""
    found = {name: getattr(account, name) for name in Account.__slots__}
    found["portions"] = [portions and sizes_of(portions) for portions in account.portions]
    return found


def sizes_of(portions: Portions) -> tuple[int, list[bool]]:
    """Told apart by their sum, and by where they are."""
    return portions.fitting(2**40), [portions.any_between(size, size + 1) for size in range(-1, 400)]


def seen_of(stage: Stage) -> object:
    """What the books say, who waits where and why, and who is in."""
    queues = stage.queues
    accounts = {name: numbers_of(account) for name, account in queues.books.ledger.accounts.items()}
    waits = {one.uid: (one.queue, one.amounts, one.least, one.off, queues.word(one)) for one in queues.waiting()}
    users = {name: dict(queues.books.users.held_in(name)) for name in accounts}
    return accounts, waits, users, {uid: charge.amounts for uid, charge in queues.books.ledger.charges().items()}


@pytest.mark.parametrize("first", range(0, 24, 4))
def test_an_edit_comes_to_what_it_would_were_everybody_put_down_anew(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Walks of two worlds with the same events, of which one reads everybody anew: after each step they are equal."""
    for seed in range(first, first + 4):
        grafted, anew = Edited(), Edited()
        chance = random.Random(seed)
        for name in chance.choices(WALKED, k=70):
            again = chance.randrange(2**16)
            for world in (grafted, anew):
                world.chance = random.Random(again)
                with monkeypatch.context() as patch:
                    if world is anew:
                        patch.setattr(Planting, "graft", lambda _: False)
                    getattr(world, name)()
            assert seen_of(grafted) == seen_of(anew), (seed, name)
        grafted.check()


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(TREE | {"a": queue("o", guarantee=400, weight=3)}, id="guarantee and weight"),
        pytest.param(TREE | {"b": queue("o", limit=200)}, id="limit"),
        pytest.param(TREE | {"b": queue("o", stop="hold")}, id="held"),
        pytest.param(TREE | {"b": queue("c")}, id="moved, so that others wait nowhere"),
        pytest.param({name: spec for name, spec in TREE.items() if name != "c"}, id="deleted"),
    ],
)
def test_nobody_is_read_anew_for_an_edit_but_who_waits_otherwise(
    after: dict[str, QueueSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading is most of what an edit took: whoever is in, or waits as before, stays as it was read."""
    stage = Stage(TREE)
    for name in "abc" * 4:
        stage.submit(f"{name}{len(stage.pods)}", queue=name, user=name)
    stage.run()
    before = {one.uid: stage.queues.register.hall.why_nowhere(one.uid) for one in stage.queues.waiting()}
    read, as_written = list[str](), Enrolment.waiter

    def noted(enrolment: Enrolment, pod: Pod) -> Waiter | None:
        read.append(pod.metadata.uid)
        return as_written(enrolment, pod)

    monkeypatch.setattr(Enrolment, "waiter", noted)
    stage.queues.queues_seen(after)
    hall = stage.queues.register.hall
    assert sorted(read) == sorted(uid for uid, why in before.items() if hall.why_nowhere(uid) != why)


def test_who_may_be_kept_off_a_model_by_another_tree_is_read_anew() -> None:
    """A limit of a model that sinks to nothing keeps pods off it that waited for it, and lets them come back."""
    none, one = ({"*H100*": ModelQuota(compute=Quota(limit=limit))} for limit in (0, 100))
    stage = Stage({"a": queue(models=one)}, nodes=(1, 1), models={0: H100})
    stage.submit("x", queue="a")
    for models, off in ((none, ("*h100*",)), (one, ())):
        stage.queues.queues_seen({"a": queue(models=models)})
        assert [waiter.off for waiter in stage.queues.waiting()] == [off]


def read_as_written(enrolment: Enrolment, was: Waiter) -> Waiter | None:
    """One that was read already, once more from its pod."""
    return enrolment._as_written(was.pod, queue=was.queue)


@pytest.mark.parametrize("first", range(0, 8, 4))
def test_who_is_put_down_anew_counts_as_if_its_pod_were_read_again(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks of two worlds in which models are named and forgotten; one reads all pods at each such edit."""
    for seed in range(first, first + 4):
        kept, read = Edited(), Edited()
        chance = random.Random(seed)
        for name in chance.choices([*WALKED, *["plant"] * 8], k=60):
            again = chance.randrange(2**16)
            for world in (kept, read):
                world.chance = random.Random(again)
                with monkeypatch.context() as patch:
                    if world is read:
                        patch.setattr(Enrolment, "_again", read_as_written)
                        patch.setattr(Register, "_wait_again", lambda self, was: self.take_as_waiting(was.pod))
                    getattr(world, name)()
            assert seen_of(kept) == seen_of(read), (seed, name)


def test_who_can_never_be_evicted_is_known_again_where_the_first_queue_is_made() -> None:
    """Without queues nobody is told apart by that; and by them only so much is given for good as is guaranteed."""
    stage = Stage({}, nodes=(1,))
    for uid in ("stays", "waits"):
        stage.submit(uid, 100, notes={"preemptible": "false"})
    assert stage.run() == ["stays"]
    stage.queues.queues_seen({"default": queue(guarantee=100)})
    register = stage.queues.register
    assert [one.shape.firm for one in (register.inside.bound["stays"], *register.waiting())] == [True, True]
    stage.queues.queues_seen({})
    assert [one.shape.firm for one in (register.inside.bound["stays"], *register.waiting())] == [False, False]


def test_no_pod_is_read_for_a_model_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read 18,000 pods took one second of two; whoever is kept off a model by it is known by what it asks."""
    stage = Stage(TREE, nodes=(2, 2), models={0: H100})
    for name in "abc" * 4:
        stage.submit(f"{name}{len(stage.pods)}", queue=name, user=name)
    stage.run()
    monkeypatch.setattr(Enrolment, "_as_written", lambda *_, **__: pytest.fail("a pod is read"))
    stage.queues.queues_seen(TREE | {"c": queue(models={"*H100*": ModelQuota(compute=Quota(limit=0))})})
    assert {one.off for one in stage.queues.waiting() if one.queue == "c"} == {("*h100*",)}
    assert {one.off for one in stage.queues.waiting() if one.queue != "c"} == {()}


def test_who_has_lost_a_turn_stands_behind_others_by_other_queues_too() -> None:
    """Else it would come first again, where a model is named."""
    stage = Stage(TREE)
    stage.submit("x", queue="a")
    assert stage.round() == ["x"]
    assert stage.round(after=PROMISE + 1.0) == []
    assert [one.lost for one in stage.queues.waiting()] == [1]
    stage.queues.queues_seen(TREE | {"c": queue(models={"*H100*": ModelQuota(compute=Quota(limit=0))})})
    assert [one.lost for one in stage.queues.waiting()] == [1]


def test_what_limits_of_a_model_have_to_let_in_is_known_of_each_where_it_is_named() -> None:
    """Nothing of who may lie elsewhere, and all of who may not."""
    stage = Stage(TREE, nodes=(1, 1), models={0: H100})
    for uid in ("x", "y"):
        stage.submit(uid, queue="a")
    assert stage.run() == ["x", "y"]
    stage.submit("either", queue="a")
    stage.submit("h100", queue="a", notes={"gpu-model": "*H100*"})
    stage.queues.queues_seen(TREE | {"c": queue(models={"*H100*": ModelQuota(compute=Quota(limit=200))})})
    least = {one.uid: (one.amounts[2], one.least[2]) for one in stage.queues.waiting()}
    assert least == {"either": (100, 0), "h100": (100, 100)}
