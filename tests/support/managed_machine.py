"""Managed memory over several GPUs: the interposer's core, its rules in sets, and a driver that does things late."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field, replace
from random import Random

from support import managed_core as c
from support.managed_blocks import GRANULE, UNIT, Block, Call, Spot, Where
from support.managed_core import BY_ADVICE, BY_STREAM, BY_THREAD, Core, Fresh, Lane, Passage, Range, library

SPACE = 32  # units of addresses that blocks lie in
MOST_TAKEN = 3  # at once
GREEN = 100  # and a stream's number: the green context that it is of
TANGLED, ENDED = -1, -2  # brought by nobody knows whom, or by a stream that is no more


@dataclass(kw_only=True, eq=False)
class Taking:
    """A block that the driver is asked for, and may have given; and the calls that were under way meanwhile."""

    size: int
    home: int
    met: list[Call]
    told: c.Taking
    block: Block | None = None

    def guarded(self) -> set[int]:
        """Where calls that were under way might bring it."""
        named = {where.gpu for call in self.met for where in call.wheres}
        return {gpu for gpu in named if gpu not in (-1, self.home)}

    def guard(self) -> int:
        """What that is charged on each."""
        return GRANULE * (-(-self.size * UNIT // GRANULE) + 1)


@dataclass(kw_only=True)
class Machine:
    """The interposer's core, the same rules in sets, and a driver with streams."""

    chance: Random
    gpus: int
    core: Core = field(default_factory=Core)
    charged: list[int] = field(default_factory=lambda: [0] * 16)
    blocks: list[Block] = field(default_factory=list)
    freed: list[Block] = field(default_factory=list)  # by the driver, and not left yet
    vacated: list[Block] = field(default_factory=list)  # all that the driver was to free
    taken: list[Taking] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    streams: dict[int, deque[Call | int]] = field(default_factory=dict)
    events: dict[int, object] = field(default_factory=dict)
    passed: set[int] = field(default_factory=set)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    moments: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    legal: bool = False
    advised: bool = False  # of one stream, and much advice, of which the driver refuses half
    lane: int = 1

    # ------------------------------------------------------------------ what is charged

    def pay(self, fresh: Fresh) -> None:
        """What the core asked for."""
        for gpu, more in enumerate(fresh.bytes):
            self.charged[gpu] += more

    def check(self) -> None:
        """Exactly what the rules say, and wherever anything lies."""
        for gpu, bytes_ in enumerate(self.core.freed):
            self.charged[gpu] -= bytes_
            self.core.freed[gpu] = 0
        self.core.over = None
        known = [*self.blocks, *self.freed]
        own = [spot for block in known for spot in block.on if spot[0] in block.own()]
        on = own + list({spot for block in known for spot in block.on if spot[0] not in block.own()})
        rest = [sum(one.guard() for one in self.taken if gpu in one.guarded()) for gpu in range(16)]
        assert self.charged == [GRANULE * sum(1 for spot in on if spot[1] == gpu) + rest[gpu] for gpu in range(16)]
        for block in self.blocks:
            assert {spot for spot in block.lies if spot[1] != block.home} <= block.on
        for one, block in self._given():
            assert {gpu for _, gpu in block.lies} - {block.home} <= one.guarded()
            assert len({granule for granule, _ in block.lies}) * GRANULE <= one.guard()

    # ------------------------------------------------------------------ blocks

    def _given(self) -> list[tuple[Taking, Block]]:
        """Those that the driver has given, and which are not entered yet."""
        return [(one, one.block) for one in self.taken if one.block]

    def ask(self) -> None:
        """The driver is about to be asked for a block."""
        if len(self.taken) == MOST_TAKEN:
            return
        size, home = self.chance.choice([1, 1, 2, 3, 4, 6, 9]), self.chance.randrange(self.gpus)
        told, fresh = c.Taking(), Fresh()
        library().managed_core_taking(self.core, told, home, size * UNIT)
        taking = Taking(size=size, home=home, met=list(self.calls), told=told)
        assert library().managed_core_is_met(self.core, told) == bool(taking.guarded())
        library().managed_core_guard(self.core, told, fresh)
        library().managed_core_guarded(self.core, told)
        self.pay(fresh)
        self.taken.append(taking)
        if self.legal:
            self.take()

    def take(self) -> None:
        """The driver gives one where there is room; it is entered later. Or it refuses."""
        wanted = [one for one in self.taken if not one.block]
        if not wanted:
            return
        taking = self.chance.choice(wanted)
        block = Block(at=self.chance.randrange(SPACE - taking.size), size=taking.size, home=taking.home)
        if not any(map(block.overlaps, [*self.blocks, *(other for _, other in self._given())])):
            taking.block = block
        elif self.legal or self.chance.random() < 0.1:
            self._gives_up(taking)
        if self.legal:
            self.enter()

    def _gives_up(self, taking: Taking) -> None:
        self.taken.remove(taking)
        library().managed_core_taken(self.core, taking.told)

    def enter(self) -> None:
        """It is entered, with what was placed there meanwhile; or the driver takes it back."""
        if not self._given():
            return
        taking, block = self.chance.choice(self._given())
        if not self.legal and self.chance.random() < 0.1:
            self.flush(block)
            self._gives_up(taking)
            return
        self.taken.remove(taking)
        told = Range(block.at * UNIT, block.size * UNIT, block.home)
        block.handle = library().managed_core_enter(self.core, taking.told, told)
        library().managed_core_taken(self.core, taking.told)
        self.blocks.append(block)
        for call in self._met(block, taking.met):
            for where in call.wheres:
                self._meets(block, call, where)

    def _met(self, block: Block, calls: list[Call]) -> list[Call]:
        """Calls that were under way when nothing else lay any more where it lies."""
        since = max((other.vacated for other in self.vacated if other.overlaps(block)), default=0)
        return [call for call in calls if call.ended is None or call.ended > since]

    def _meets(self, block: Block, call: Call, where: Where) -> None:
        touched = block.touched(where)
        if not touched:
            return
        block.brought_by = TANGLED
        block.copied = block.copied or call.copies
        if where.brings(block):
            block.on |= {(granule, where.gpu) for granule in touched}
        if call in self.calls:
            for granule in touched:
                block.busy.setdefault(granule, []).append((call, where.to(block)))

    def vacate(self) -> None:
        """The driver is about to be asked to free one, which the core is told before."""
        candidates = [one for one in self.blocks if not (self.legal and one.busy)]
        if not candidates:
            return
        block = self.chance.choice(candidates)
        library().managed_core_vacated(self.core, block.handle)
        block.vacated = next(self.moments)
        self.vacated.append(block)
        if self.legal:
            self.free()

    def free(self) -> None:
        """The driver frees it when its streams are done with it; the core is told later."""
        candidates = [one for one in self.blocks if one.vacated]
        if not candidates:
            return
        block = self.chance.choice(candidates)
        self.flush(block)
        self.blocks.remove(block)
        self.freed.append(block)
        if self.legal:
            self.leave()

    def leave(self) -> None:
        """The core is told."""
        if self.freed:
            block = self.freed.pop(self.chance.randrange(len(self.freed)))
            library().managed_core_leave(self.core, block.handle)

    # ------------------------------------------------------------------ calls

    def begin(self) -> None:
        """A call is about to be made, by any stream, by advice, or by a thread's own stream."""
        if len(self.calls) == (1 if self.legal else 3):
            return
        by = self._by()
        wheres = self._wheres(1 if by == BY_ADVICE else self.chance.choice([1, 1, 1, 2, 3]))
        lane = 1 if self.advised else self.chance.randrange(1, 4)
        if self.legal and lane != self.lane:
            self.wait()
        self.lane = lane
        ranges = (Range * len(wheres))(*(Range(one.at * UNIT, one.size * UNIT, one.gpu) for one in wheres))
        copies = by == BY_ADVICE and self.chance.random() < 0.2
        placing = library().managed_placing(ranges, len(wheres), Lane(lane, GREEN + lane, by))
        placing.contents.copies = copies
        call, fresh = Call(wheres=wheres, lane=lane, by=by, copies=copies, placing=placing), Fresh()
        call.prefers = by == BY_ADVICE and not copies
        lacking = [one for one in self.taken if replace(one, met=[*one.met, call]).guarded() != one.guarded()]
        assert library().managed_core_meets(self.core, placing) == bool(lacking)
        assert library().managed_core_plan(self.core, placing, fresh)
        if not self.legal and self.chance.random() < 0.2:
            library().managed_core_drop(self.core, placing)
            return
        library().managed_core_begin(self.core, placing)
        self.pay(fresh)
        self.calls.append(call)
        for taking in self.taken:
            taking.met.append(call)
        for block, where in itertools.product([*self.blocks, *self.freed], wheres):
            self._begins(block, call, where)

    def _by(self) -> int:
        if self.legal:
            return BY_STREAM
        ways = [BY_STREAM, BY_ADVICE] if self.advised else [BY_STREAM] * 6 + [BY_THREAD, BY_ADVICE]
        return self.chance.choice(ways)

    def _wheres(self, count: int) -> list[Where]:
        """Anything at all; of a legal program whole blocks, each once."""
        sizes = [4, 8, SPACE, SPACE] if self.advised else [1, 4, 8, SPACE]
        places = [(self.chance.randrange(SPACE), self.chance.choice(sizes)) for _ in range(count)]
        if self.legal:
            blocks = self.chance.sample(self.blocks, min(count, len(self.blocks)))
            places = [(block.at, block.size) for block in blocks]
        return [Where(at=at, size=size, gpu=self.chance.randrange(-1, self.gpus)) for at, size in places]

    def _begins(self, block: Block, call: Call, where: Where) -> None:
        touched, to = block.touched(where), where.to(block)
        for granule in touched:
            under_way = block.busy.setdefault(granule, [])
            if any(other != to for _, other in under_way):
                block.crossed.add(granule)
            under_way.append((call, to))
        if call.copies and touched:
            block.copied, block.leaves, block.passage = True, set(), None
        if to == -1 or not touched:
            return
        spots = {(granule, to) for granule in touched}
        block.on |= spots
        block.leaves -= spots
        block.preferred |= spots if call.prefers else set()
        if call.by != BY_ADVICE:
            self._brings(block, call)

    def _is_behind(self, block: Block, call: Call) -> bool:
        return call.by == BY_STREAM and not call.ended_stream and block.brought_by in (None, call.lane)

    def _brings(self, block: Block, call: Call) -> None:
        block.brought_by = call.lane if self._is_behind(block, call) else TANGLED

    def issue(self) -> None:
        """The driver is asked, and does it when the stream has come so far; advice it takes at once."""
        waiting = [call for call in self.calls if not call.issued]
        if not waiting:
            return
        call = self.chance.choice(waiting)
        call.done = self.legal or self.chance.random() < (0.5 if self.advised else 0.9)
        call.issued, call.found = True, [*self.blocks, *(block for _, block in self._given())]
        if not call.done and self.chance.random() < 0.5:
            return  # refused, and nothing of it was done; or all of it was, whatever was answered
        if call.by == BY_STREAM:
            self.streams.setdefault(call.lane, deque()).append(call)
        else:
            self._do(call)

    def end(self) -> None:
        """The driver has answered: what the call takes away is noted, with an event behind it."""
        done = [call for call in self.calls if call.issued]
        if not done:
            return
        call = self.chance.choice(done)
        known = [*self.blocks, *self.freed]
        followed = [
            (block, self._takes_away(block, where))
            for block, where in itertools.product(known, call.wheres)
            if self._is_followed(block, call, where)
        ]
        assert library().managed_core_is_followed(self.core, call.placing) == bool(followed)
        passage = Passage() if followed and (self.legal or self.advised or self.chance.random() < 0.9) else None
        number = next(self.numbers)
        for block, spots in followed if passage else []:
            block.leaves |= spots if call.done else set()
            block.passage = number
            self._brings(block, call)
        if passage:
            self.events[number] = passage
            self.streams.setdefault(call.lane, deque()).append(number)
        library().managed_core_end(self.core, call.placing, passage, call.done)
        call.ended = next(self.moments)
        self.calls.remove(call)
        for block, where in itertools.product(known, call.wheres):
            if call.by != BY_ADVICE and where.brings(block) and block.touched(where) and block.passage != number:
                block.brought_by = TANGLED
        for block in [*self.blocks, *self.freed]:
            self._prefers_alone(block, call)
            for granule, under_way in list(block.busy.items()):
                block.busy[granule] = [other for other in under_way if other[0] is not call]
                if not block.busy[granule]:
                    del block.busy[granule]
                    block.crossed.discard(granule)
            self._rests(block)

    def _prefers_alone(self, block: Block, call: Call) -> None:
        """What it was advised before holds no more, where nobody can have said so after it."""
        if not call.done or not call.prefers:
            return
        for where in call.wheres:
            granules = block.covered(where) - block.crossed
            block.preferred = {spot for spot in block.preferred if spot[0] not in granules or spot[1] == where.gpu}

    def _rests(self, block: Block) -> None:
        if not block.busy and block.passage is None and block.brought_by != TANGLED:
            block.brought_by = None

    def _is_followed(self, block: Block, call: Call, where: Where) -> bool:
        brings = where.brings(block) and bool(block.touched(where))
        return self._is_behind(block, call) and (brings or bool(self._takes_away(block, where)))

    def _takes_away(self, block: Block, where: Where) -> set[Spot]:
        if block.copied:
            return set()
        granules = block.covered(where) - block.crossed
        stays = block.preferred | {(granule, where.gpu) for granule in granules}
        return {spot for spot in block.on - stays if spot[0] in granules}

    # ------------------------------------------------------------------ the driver

    def _do(self, call: Call) -> None:
        for block, where in itertools.product(call.found, self.chance.sample(call.wheres, len(call.wheres))):
            if call.copies and block.touched(where):
                block.copied = True
            if not block.copied:
                block.lies = {spot for spot in block.lies if spot[0] not in block.covered(where)}
            if where.gpu >= 0:
                block.lies |= {(granule, where.gpu) for granule in block.touched(where)}
            if call.prefers:
                self._advise(block, where)

    def _advise(self, block: Block, where: Where) -> None:
        block.advised = {spot for spot in block.advised if spot[0] not in block.covered(where)}
        if where.gpu >= 0:
            block.advised |= {(granule, where.gpu) for granule in block.touched(where)}

    def touch(self) -> None:
        """The driver brings memory to where it was advised to lie."""
        known = [block for block in [*self.blocks, *(block for _, block in self._given())] if block.advised]
        if known:
            block = self.chance.choice(known)
            block.lies.add(self.chance.choice(sorted(block.advised)))

    def run(self) -> None:
        """A stream does the next that it was given."""
        waiting = [stream for stream in self.streams.values() if stream]
        if not waiting:
            return
        done = self.chance.choice(waiting).popleft()
        if isinstance(done, Call):
            self._do(done)
        else:
            self.passed.add(done)

    def flush(self, block: Block) -> None:
        """All streams are done with a block."""
        for stream in self.streams.values():
            while any(isinstance(one, Call) and any(map(block.touched, one.wheres)) for one in stream):
                done = stream.popleft()
                if isinstance(done, Call):
                    self._do(done)
                else:
                    self.passed.add(done)

    def settle(self) -> None:
        """The core is told of a passage that it still asks after, and that is done."""
        asked = {one.passage for one in [*self.blocks, *self.freed]}
        done = sorted(number for number in self.passed if number in asked)
        if not done:
            return
        number = self.chance.choice(done)
        library().managed_core_passed(self.core, self.events[number], True)
        for block in [*self.blocks, *self.freed]:
            if block.passage != number:
                continue
            block.on -= block.leaves
            block.leaves, block.passage = set(), None
            if not block.on:
                block.brought_by = None
            self._rests(block)

    def wait(self) -> None:
        """Until the streams are done, and the core knows."""
        while any(self.streams.values()):
            self.run()
        while any(block.passage for block in [*self.blocks, *self.freed]):
            self.settle()

    def end_stream(self) -> None:
        """What it was given still runs; the next one may have its number."""
        if self.legal or self.chance.random() < 0.8:
            return
        lane = self.chance.randrange(1, 4)
        if self.chance.random() < 0.5:
            library().managed_core_let_go(self.core, lane)
        else:
            library().managed_core_let_green_go(self.core, GREEN + lane, None)
        if lane in self.streams:
            self.streams[-next(self.numbers)] = self.streams.pop(lane)
        for call in self.calls:
            call.ended_stream = call.ended_stream or (call.by == BY_STREAM and call.lane == lane)
        for block in [*self.blocks, *self.freed]:
            if block.brought_by == lane:
                block.brought_by = ENDED

    def walk(self, steps: int) -> None:
        """Chance for so many steps."""
        choices = [self.ask] * 3 + [self.take] * 3 + [self.enter] * 3
        choices += [self.vacate, self.free, self.leave, self.leave] + [self.begin] * 4
        choices += (
            [self.issue] * 4 + [self.end] * 4 + [self.run] * 6 + [self.settle] * 3 + [self.touch, self.end_stream]
        )
        for _ in range(steps):
            self.chance.choice(choices)()
            self.check()

    def finish(self) -> None:
        """Everything that was begun ends."""
        while self.calls:
            self.issue()
            self.end()
        self.wait()
        self.check()
