"""What is charged of managed memory over several GPUs, against plain sets and a driver that does things late."""

from __future__ import annotations

import ctypes
import os
from random import Random

import pytest

from support.managed_blocks import GRANULE
from support.managed_core import BY_STREAM, Core, Fresh, Lane, Passage, Placing, Range, Taking, library
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


GREEN = 101  # the green context of stream 1


def moving(core: Core, gpu: int) -> ctypes._Pointer[Placing]:
    """A call of stream 1 has begun that brings the block to a GPU."""
    core_c = library()
    placing: ctypes._Pointer[Placing] = core_c.managed_placing(
        (Range * 1)(Range(4 * GRANULE, 2 * GRANULE, gpu)), 1, Lane(1, GREEN, BY_STREAM)
    )
    assert core_c.managed_core_plan(core, placing, Fresh())
    core_c.managed_core_begin(core, placing)
    return placing


@pytest.mark.parametrize("green", [False, True])
@pytest.mark.parametrize("ended", [True, False])
def test_what_a_stream_brought_that_ended_the_next_of_its_number_does_not_take_away(green: bool, ended: bool) -> None:
    """By itself or with its green context; that another one ends changes nothing."""
    core, core_c, taking, passage = Core(), library(), Taking(), Passage()
    core_c.managed_core_taking(core, taking, 0, 2 * GRANULE)
    assert core_c.managed_core_enter(core, taking, Range(4 * GRANULE, 2 * GRANULE, 0))
    core_c.managed_core_taken(core, taking)
    core_c.managed_core_end(core, moving(core, 1), passage, True)
    if green:
        core_c.managed_core_let_green_go(core, GREEN if ended else GREEN + 1, None)
    else:
        core_c.managed_core_let_go(core, 1 if ended else 2)
    assert core_c.managed_core_is_followed(core, moving(core, -1)) == (not ended)
