"""Managed memory is charged on each GPU of the slice that it is placed on, and a hint without room is no error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from support.isolation import CONTEXT, MIB, Built, Container, Tenant, World

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

OUT_OF_MEMORY, INVALID_DEVICE, INVALID_HANDLE = "2", "101", "400"
WAYS = ["prefetch", "prefetch-thread", "prefetch-two", "prefetch-two-thread", "advise", "advise-two"]
WAYS += ["batch", "batch-thread", "discard", "discard-thread"]
HOST = -1
BLOCK = 400 * MIB
SMALLER = 300 * MIB  # of which a GPU has room for two


@pytest.fixture
def container(tmp_path: Path, built: Built) -> Iterator[Container]:
    """One with 1,000 MiB of each of two GPUs."""
    world = World(built=built, folder=tmp_path, memory_mib=(16_384, 16_384))
    yield world.container(memory_mib=1000, gpus=2)
    world.close()


def holding(container: Container) -> Tenant:
    """A program that has taken a block on the first GPU."""
    tenant = container.run().started()
    assert tenant.ask(f"take managed {BLOCK}") == "0"
    return tenant


def charged(container: Container, tenant: Tenant) -> tuple[int, ...]:
    """What it is charged by GPU."""
    return container.account().processes[tenant.process.pid]


def used(container: Container) -> tuple[int, int]:
    """What it really holds by GPU."""
    one, other = (container.world.used(container.number, gpu=gpu) for gpu in range(2))
    return one, other


def place(tenant: Tenant, way: str, gpu: int, *, number: int = 0, at: int = 0, size: int = BLOCK) -> None:
    """Place part of a block, and be told that it went well."""
    assert tenant.ask(f"place {way} {number} {at} {size} {gpu}") == "0"


@pytest.mark.parametrize("way", WAYS)
def test_what_lies_on_another_gpu_leaves_less_there(container: Container, way: str) -> None:
    """Once, however often it is placed there; it stays charged where it was taken, for it may come back."""
    tenant = holding(container)
    for _ in range(3):
        place(tenant, way, 1)
    assert used(container) == (CONTEXT, BLOCK)
    assert charged(container, tenant) == (CONTEXT + BLOCK, BLOCK)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["3", OUT_OF_MEMORY]
    assert container.world.peak(container.number, gpu=1) <= 1000 * MIB
    assert tenant.ask("empty") == "0"
    assert charged(container, tenant) == used(container) == (CONTEXT, CONTEXT)


@pytest.mark.parametrize("way", WAYS)
def test_what_finds_no_room_there_stays_where_it_is(container: Container, way: str) -> None:
    """The program goes on, and gives everything back that it was charged."""
    tenant = holding(container)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["7", OUT_OF_MEMORY]
    place(tenant, way, 1)
    assert used(container) == (CONTEXT + BLOCK, 1000 * MIB)
    assert container.world.peak(container.number, gpu=1) <= 1000 * MIB
    assert tenant.ask("empty") == "0"
    assert charged(container, tenant) == used(container) == (CONTEXT, CONTEXT)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_where_the_driver_brings_nothing_nothing_is_charged(container: Container, way: str, full: bool) -> None:
    """A GPU that can't work on managed memory beside the host: each such call is refused, and changes nothing."""
    tenant = container.run(environment={"FAKE_CUDA_MANAGED": "still"}).started()
    assert tenant.ask(f"take managed {BLOCK}") == "0"
    if full:
        assert tenant.ask(f"second-fill {100 * MIB}").split() == ["7", OUT_OF_MEMORY]
    for _ in range(3):
        assert tenant.ask(f"place {way} 0 0 {BLOCK} 1") == INVALID_DEVICE
    assert used(container) == charged(container, tenant) == (CONTEXT + BLOCK, 1000 * MIB if full else 0)


# What a thread's own default stream does nobody can put in order once the thread has ended.
@pytest.mark.parametrize("way", ["prefetch", "prefetch-two", "batch", "discard"])
@pytest.mark.parametrize("gpu", [HOST, 0])
def test_what_has_left_a_gpu_makes_room_there(container: Container, way: str, gpu: int) -> None:
    """To the host or home again: who works on a large block by pieces has all of the GPU for each."""
    tenant = holding(container)
    for _ in range(3):
        place(tenant, way, 1)
        place(tenant, way, gpu)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["7", OUT_OF_MEMORY]
    assert charged(container, tenant) == (CONTEXT + BLOCK, 1000 * MIB)


OLD = [f"{way}{name}" for way in ("prefetch", "prefetch-two", "batch", "discard") for name in ("-old", "-thread-old")]


@pytest.mark.parametrize(("brings", "takes"), [("prefetch", "prefetch-old"), *[(way, "prefetch") for way in OLD]])
def test_the_default_stream_is_one_by_each_of_its_names(container: Container, brings: str, takes: str) -> None:
    """NULL and 1, that one also where NULL is the thread's own: what it brought by one it takes away by the other."""
    tenant = holding(container)
    assert tenant.ask("work 100000") == "0"
    place(tenant, brings, 1)
    place(tenant, takes, HOST)
    assert tenant.ask("graph-wait 0") == "0"
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["7", OUT_OF_MEMORY]


def test_a_default_stream_does_not_end(container: Container) -> None:
    """A program that ends it is refused, and what it was given before is still known to be its own."""
    tenant = holding(container)
    assert tenant.ask("work 100000") == "0"
    place(tenant, "prefetch", 1)
    assert tenant.ask("end-default-stream") == INVALID_HANDLE
    place(tenant, "prefetch", HOST)
    assert tenant.ask("graph-wait 0") == "0"
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["7", OUT_OF_MEMORY]


@pytest.mark.parametrize("way", [way for way in WAYS if way.endswith("-thread")])
def test_what_a_thread_s_own_stream_brings_stays_until_it_is_freed(container: Container, way: str) -> None:
    """With the thread that stream ends, and another one's looks the same."""
    tenant = holding(container)
    for gpu in (1, HOST):
        place(tenant, way, gpu)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["3", OUT_OF_MEMORY]
    assert tenant.ask("empty") == "0"
    assert charged(container, tenant) == used(container) == (CONTEXT, CONTEXT)


@pytest.mark.parametrize("how", ["streams-place", "ended-place"])
def test_what_another_stream_takes_away_may_come_later(container: Container, how: str) -> None:
    """What is done on one says nothing of the other: the call that brings it there may still wait behind a kernel."""
    tenant = holding(container)
    assert tenant.ask(f"{how} {BLOCK}") == "0"
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["3", OUT_OF_MEMORY]


def test_when_all_of_it_has_left_another_stream_may_bring_it(container: Container) -> None:
    """One round after the other, each by a stream of its own."""
    tenant = holding(container)
    for _ in range(3):
        assert tenant.ask(f"stream-place {BLOCK}") == "0"
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["7", OUT_OF_MEMORY]


def test_what_is_on_its_way_has_not_left(container: Container) -> None:
    """Whatever the stream has to do before: a kernel that does not end would keep it there."""
    tenant = holding(container)
    place(tenant, "prefetch", 1)
    assert tenant.ask("work 60000000") == "0"
    place(tenant, "prefetch", HOST)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["3", OUT_OF_MEMORY]
    assert charged(container, tenant) == (CONTEXT + BLOCK, 1000 * MIB)


@pytest.mark.parametrize("way", ["read", "read-two"])
def test_of_what_is_mostly_read_copies_stay_where_they_are(container: Container, way: str) -> None:
    """To place it elsewhere makes one more, and takes none away."""
    tenant = holding(container)
    place(tenant, way, 1)
    for gpu in (1, HOST):
        place(tenant, "prefetch", gpu)
    assert used(container) == (CONTEXT + BLOCK, BLOCK)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["3", OUT_OF_MEMORY]
    assert container.world.peak(container.number, gpu=1) <= 1000 * MIB


def test_what_is_on_its_way_stays_where_it_becomes_copies(container: Container) -> None:
    """What the driver has not moved by then it need not move any more; that it is done says nothing."""
    tenant = holding(container)
    place(tenant, "prefetch", 1)
    assert tenant.ask("work 60000000") == "0"
    for way, gpu in (("prefetch", HOST), ("read", 1)):
        place(tenant, way, gpu)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["3", OUT_OF_MEMORY]


def test_pieces_leave_one_after_the_other(container: Container) -> None:
    """While the first is on its way the next is told to go, and all of them have left when the stream is done."""
    tenant = holding(container)
    place(tenant, "prefetch", 1)
    assert tenant.ask("work 1000000") == "0"
    for at in (0, BLOCK // 2):
        place(tenant, "prefetch", HOST, at=at, size=BLOCK // 2)
    found = 0
    while found < 7:
        found += int(tenant.ask(f"second-fill {100 * MIB}").split()[0])


def test_what_comes_back_while_it_leaves_stays_charged(container: Container) -> None:
    """The last word counts, not the first that is done."""
    tenant = holding(container)
    for gpu in (1, HOST, 1):
        place(tenant, "prefetch", gpu)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["3", OUT_OF_MEMORY]
    assert container.world.peak(container.number, gpu=1) <= 1000 * MIB


@pytest.mark.parametrize("two", ["", "-two"])
@pytest.mark.parametrize(("how", "gpu"), [("unset", 1), ("advise", HOST), ("advise", 0)])
def test_where_it_is_advised_to_lie_it_stays_charged(container: Container, how: str, gpu: int, two: str) -> None:
    """Also when it is placed elsewhere, for the driver may bring it back by itself: until other advice is given."""
    tenant = holding(container)
    place(tenant, f"advise{two}", 1)
    place(tenant, "prefetch", HOST)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["3", OUT_OF_MEMORY]
    place(tenant, f"{how}{two}", gpu)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["0", OUT_OF_MEMORY]
    place(tenant, "prefetch", HOST)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["4", OUT_OF_MEMORY]


@pytest.mark.parametrize("two", ["", "-two"])
def test_advice_that_the_driver_refuses_takes_none_back(container: Container, two: str) -> None:
    """What it was advised before holds, and the driver may still bring it back."""
    tenant = holding(container)
    place(tenant, "advise", 1)
    assert tenant.ask(f"place advise{two} 0 0 {BLOCK} 9") == INVALID_DEVICE
    place(tenant, "prefetch", HOST)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["3", OUT_OF_MEMORY]


def test_part_of_a_granule_takes_no_advice_back(container: Container) -> None:
    """The rest of it is still preferred to lie there."""
    tenant = holding(container)
    place(tenant, "advise", 1)
    place(tenant, "unset", 1, size=BLOCK - MIB)
    place(tenant, "prefetch", HOST)
    assert tenant.ask("info").split()[0] == "0"
    assert charged(container, tenant) == (CONTEXT + BLOCK, 2 * MIB)


def test_what_was_on_its_way_when_its_context_ended_has_left(container: Container) -> None:
    """With a context its events are gone, and what it had to do is over: nobody asks after them."""
    tenant = holding(container)
    assert tenant.ask(f"passing-place {BLOCK}") == "0"
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["7", OUT_OF_MEMORY]


def test_what_was_placed_goes_with_the_context_that_it_was_taken_in(container: Container) -> None:
    """Wherever it was, and whatever the stream had still to do."""
    tenant = holding(container)
    place(tenant, "prefetch", 1)
    assert tenant.ask("work 60000000") == "0"
    place(tenant, "prefetch", HOST)
    assert tenant.ask("release") == "0"
    assert charged(container, tenant) == used(container) == (0, 0)


def test_part_of_a_granule_takes_a_granule_and_takes_none_away(container: Container) -> None:
    """The driver moves memory by its own pages: what may lie there is charged until nothing of it can."""
    tenant = holding(container)
    place(tenant, "prefetch", 1, at=3 * MIB, size=2 * MIB)
    assert charged(container, tenant) == (CONTEXT + BLOCK, 4 * MIB)
    place(tenant, "prefetch", HOST, at=3 * MIB, size=2 * MIB)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["6", OUT_OF_MEMORY]
    place(tenant, "prefetch", HOST, at=2 * MIB, size=4 * MIB)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["1", OUT_OF_MEMORY]


def test_small_blocks_that_share_a_granule_are_charged_once_for_it(container: Container) -> None:
    """A thousand of them take what they would of the GPU, and no more of the slice."""
    tenant = container.run().started()
    for number in range(1000):
        assert tenant.ask("take managed 4096") == "0"
        place(tenant, "prefetch", 1, number=number, size=4096)
    assert charged(container, tenant) == used(container) == (CONTEXT + 4 * MIB, 4 * MIB)
    for number in range(999):
        place(tenant, "prefetch", HOST, number=number, size=4096)
    assert tenant.ask("info").split()[0] == "0"
    assert charged(container, tenant) == used(container) == (CONTEXT + 4 * MIB, 2 * MIB)
    assert tenant.ask("empty") == "0"
    assert charged(container, tenant) == used(container) == (CONTEXT, 0)


@pytest.mark.parametrize("way", ["batch", "batch-thread", "discard", "discard-thread"])
def test_of_a_batch_that_finds_no_room_nothing_is_charged(container: Container, way: str) -> None:
    """Although its first half would fit: all of it stays where it is."""
    tenant = holding(container)
    assert tenant.ask(f"second-fill {BLOCK}").split() == ["1", OUT_OF_MEMORY]
    place(tenant, way, 1)
    assert charged(container, tenant) == used(container) == (CONTEXT + BLOCK, CONTEXT + BLOCK)
    place(tenant, way, 1, size=BLOCK // 2)
    assert charged(container, tenant) == (CONTEXT + BLOCK, CONTEXT + BLOCK + BLOCK // 2)


def test_what_threads_place_at_the_same_time_is_charged_by_itself(container: Container) -> None:
    """One's call is under way, and what another's takes away leaves all the same."""
    tenant = holding(container)
    assert tenant.ask(f"take managed {100 * MIB}") == "0"
    assert tenant.ask(f"place-beside {100 * MIB}") == "0"
    assert tenant.ask("info").split()[0] == "0"
    assert charged(container, tenant) == (CONTEXT + BLOCK + 100 * MIB, 100 * MIB)
    place(tenant, "prefetch", HOST)
    assert tenant.ask("info").split()[0] == "0"
    assert charged(container, tenant) == (CONTEXT + BLOCK + 100 * MIB, 0)


def test_what_is_taken_where_another_block_is_being_placed_is_charged_there(container: Container) -> None:
    """A call that was made for one block may find the next one in its place."""
    tenant = holding(container)
    assert tenant.ask(f"replace-while-placed {BLOCK}").split() == ["0", "1"]
    assert used(container) == (CONTEXT, BLOCK)
    assert charged(container, tenant) == (CONTEXT + BLOCK, BLOCK)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["3", OUT_OF_MEMORY]
    assert container.world.peak(container.number, gpu=1) <= 1000 * MIB


def test_what_was_placed_there_before_is_not_the_next_block_s(container: Container) -> None:
    """A call that was over before the old block was freed can't have found the new one, whenever that was asked for."""
    tenant = container.run().started()
    assert tenant.ask(f"take managed {SMALLER}") == "0"
    assert tenant.ask(f"freed-take {SMALLER}").split() == ["0", "1"]
    assert used(container) == charged(container, tenant) == (CONTEXT + SMALLER, 0)


def test_a_call_that_ends_while_a_block_is_freed_may_have_found_the_next(container: Container) -> None:
    """The driver may have given its place away before it says that it has freed it."""
    tenant = container.run().started()
    assert tenant.ask(f"place-while-freed {SMALLER}").split() == ["0", "1"]
    assert used(container) == (CONTEXT, SMALLER)
    assert charged(container, tenant) == (CONTEXT + SMALLER, SMALLER)


def test_who_takes_where_a_call_places_waits_until_it_is_over(container: Container) -> None:
    """A call that might bring the new block where it has no room: it is not taken before, and it is not refused."""
    container.set(msgspec.structs.replace(container.gpus[1], memory=450 * MIB), gpu=1)
    tenant = holding(container)
    assert tenant.ask(f"behind-placed {200 * MIB}").split() == ["0", "1"]
    assert container.world.peak(container.number) == CONTEXT + BLOCK
    assert container.world.peak(container.number, gpu=1) == BLOCK
    assert charged(container, tenant) == (CONTEXT + BLOCK, BLOCK)


def test_who_asks_what_is_left_is_told_of_what_has_left(container: Container) -> None:
    """At once, and not when somebody is refused."""
    tenant = holding(container)
    for gpu in (1, HOST):
        place(tenant, "prefetch", gpu)
    assert tenant.ask("on 1") == "0"
    assert tenant.ask("info").split() == ["0", str(1000 * MIB - CONTEXT), str(1000 * MIB), str(1000 * MIB)]


def test_who_waits_for_the_gpu_makes_room_for_the_container_s_others(container: Container) -> None:
    """Another process can't ask this one's streams."""
    tenant = holding(container)
    for gpu in (1, HOST):
        place(tenant, "prefetch", gpu)
    assert charged(container, tenant) == (CONTEXT + BLOCK, BLOCK)
    assert tenant.ask("graph-wait 0") == "0"
    assert charged(container, tenant) == (CONTEXT + BLOCK, 0)


def test_streams_that_follow_each_other_may_bring_and_take_away(container: Container) -> None:
    """Each GPU's own default stream, as programs use it: what one did is known when the other is given its part."""
    tenant = holding(container)
    for _ in range(3):
        assert tenant.ask("on 1") == "0"
        place(tenant, "prefetch", 1)
        assert tenant.ask("on 0") == "0"
        place(tenant, "prefetch", 0)
    assert tenant.ask(f"second-fill {100 * MIB}").split() == ["7", OUT_OF_MEMORY]
