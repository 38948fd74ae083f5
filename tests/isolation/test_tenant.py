"""The tenant that tests tell what to do: what it can't do it says, and keeps nobody waiting."""

from __future__ import annotations

import pytest

from support.isolation import MIB, World

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]


def test_a_command_that_begins_like_another_is_not_taken_for_it(world: World) -> None:
    """It says that it does not know it."""
    assert world.container(memory_mib=1000).run().ask("take-x 5") == "? take-x 5"


def test_who_waits_for_a_thread_that_was_refused_is_told(world: World) -> None:
    """It never comes to where it was to wait; nor does one that need give nothing back."""
    container = world.container(memory_mib=1000)
    refused, given = (container.run().started() for _ in range(2))
    assert refused.ask(f"meet-in-granule {800 * MIB} 4096") == "nobody waits in the driver: the call was answered by 2"
    assert refused.process.wait(60) == 5
    assert given.ask("meet-in-granule 4096 4096") == "nobody waits in the driver: the call was answered by 0"


def test_one_that_hangs_is_told_from_one_that_is_slow(world: World) -> None:
    """Whoever asked learns after what it hangs, and not when the whole test is too late."""
    tenant = world.container(memory_mib=1000).run().started()
    tenant.tell("use 3600 kernel 1000 1")
    with pytest.raises(pytest.fail.Exception, match=r"not answered within 0.1 s, told 'use 3600 kernel 1000 1'"):
        tenant.answer(within=0.1)


def test_one_that_ended_is_told_from_one_that_hangs(world: World) -> None:
    """At once, with what it was told last."""
    tenant = world.container(memory_mib=1000).run().started()
    with pytest.raises(pytest.fail.Exception, match=r"the tenant ended with 0, told 'quit'"):
        tenant.ask("quit")
