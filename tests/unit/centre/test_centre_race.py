"""Many callers at once want the one slice that is left: through the real routes, exactly one gets it."""

from __future__ import annotations

import asyncio
import random

import pytest

from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import DOUBT, Stage
from support.centre import asks
from support.centre_race import Crowd, CurrentTrial, SlowApi, Trial, crowd

TRIALS = 100


async def calls(pod: Pod, *, who: Crowd, trial: Trial, chance: random.Random, late: float = 0.3) -> list[str]:
    """What a kube-scheduler does for a pod that it does not give up: what its binds were answered."""
    answers: list[str] = []
    for _ in range(2 if chance.random() < 0.3 else 1):
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if nodes := await who.filter(pod):
            if chance.random() < late:
                # Bind comes so late that the room was promised to somebody else.
                trial.leap(31.0)
                await asyncio.sleep(0)
            binds = (who.bind(pod, nodes[0]) for _ in range(chance.randint(1, 2)))
            answers += await asyncio.gather(*binds)
    return answers


@pytest.mark.parametrize("first", range(0, 1_000, TRIALS))
async def test_exactly_one_of_many_callers_gets_the_slice(first: int) -> None:
    """1,000 trials of 8 to 64 callers; late and replayed binds win nothing."""
    current, held_up = CurrentTrial(), 0
    async with crowd(current) as who:
        for seed in range(first, first + TRIALS):
            chance = random.Random(seed)
            # Mostly few, or it takes minutes.
            pods = [asks(f"u{number}", 60, 1_000) for number in range(8 + int(57 * chance.random() ** 4))]
            current.trial = trial = Trial(pods, api=SlowApi(pods, chance=chance))
            told = await asyncio.gather(*(calls(pod, who=who, trial=trial, chance=chance) for pod in pods))
            if not trial.api.bound:
                # All were too late.
                trial.leap(600.0)
                last = trial.next_turn()
                told[pods.index(last)] += await calls(last, who=who, trial=trial, chance=chance, late=0.0)
            assert len(trial.api.bound) == 1, seed
            won = [pod.metadata.uid for pod, answers in zip(pods, told, strict=True) if "" in answers]
            assert won == trial.api.bound, seed
            assert sum(answers.count("") for answers in told) == 1, seed
            held_up += sum(len(answers) for answers in told) - 1
    assert held_up > TRIALS // 4, "others must have come as far as bind"


async def test_no_second_one_gets_it_when_answers_get_lost() -> None:
    """Whoever is not told has the room until the API server says whether it was done."""
    current, in_doubt = CurrentTrial(), 0
    async with crowd(current) as who:
        for seed in range(TRIALS):
            chance = random.Random(seed)
            pods = [asks(f"u{number}", 60, 1_000) for number in range(8)]
            current.trial = trial = Trial(pods, api=SlowApi(pods, chance=chance, lost=0.6))
            await asyncio.gather(*(calls(pod, who=who, trial=trial, chance=chance) for pod in pods))
            in_doubt += sum(promise.stage is Stage.DOUBTFUL for promise in trial.desk.promises)
            trial.leap(DOUBT)
            assert len(trial.api.bound) <= 1, seed
            assert list(trial.picture.holdings.everything()) == trial.api.bound, seed
    assert in_doubt, "some must have ended so"


async def test_a_pod_made_again_under_its_name_inherits_no_binding() -> None:
    """What was asked for the one that is gone binds nobody, and its successor is placed by itself."""
    gone, successor = asks("old", 60, 1_000, name="one"), asks("new", 60, 1_000, name="one")
    current, trial = CurrentTrial(), Trial([gone], api=SlowApi([successor], chance=random.Random(1)))
    current.trial = trial
    async with crowd(current, connections=1) as who:
        assert await who.filter(gone) == ["n1"]
        assert await who.bind(gone, "n1")
        assert not trial.api.bound
        trial.desk.pod_gone(gone)
        trial.desk.pod_seen(successor)
        assert await who.bind(successor, "n1"), "it was not filtered yet"
        assert await who.filter(successor) == ["n1"]
        assert await who.bind(successor, "n1") == ""
    assert trial.api.bound == ["new"]
    assert list(trial.picture.holdings.everything()) == ["new"]
