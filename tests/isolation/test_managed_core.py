"""What is charged of managed memory over several GPUs, against plain sets and a driver that does things late."""

from __future__ import annotations

import os
from random import Random

import pytest

from support.managed_machine import Machine

pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

SEEDS = 2000 if os.environ.get("ALIQUOT_SOAK") else 60
STEPS = 250


@pytest.mark.parametrize("gpus", [2, 3, 4])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_charged_is_what_the_rules_say(seed: int, gpus: int) -> None:
    """Whatever threads do at once, and however late the driver does it: no more, and wherever anything lies."""
    machine = Machine(chance=Random(seed), gpus=gpus)
    machine.walk(STEPS)


@pytest.mark.parametrize("gpus", [2, 3])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_advised_to_lie_somewhere_stays_charged_there(seed: int, gpus: int) -> None:
    """The driver may bring it back whenever it likes, until it is told otherwise and has taken it away."""
    machine = Machine(chance=Random(seed), gpus=gpus, advised=True)
    machine.walk(STEPS)


@pytest.mark.parametrize("gpus", [2, 3])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_of_a_program_that_can_be_followed_nothing_stays_charged_that_has_left(seed: int, gpus: int) -> None:
    """One call at a time, whole blocks, one stream after the other: what is charged when all is done lies there."""
    machine = Machine(chance=Random(seed), gpus=gpus, legal=True)
    machine.walk(STEPS)
    machine.finish()
    for block in machine.blocks:
        assert block.on == {spot for spot in block.lies if spot[1] != block.home}
