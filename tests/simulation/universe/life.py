"""One life of a process: it may end at any await and before any write, as by `kill -9`.

A dead process does nothing more: whatever its coroutines still try on the way out raises `Killed`, its connections are
shut from outside, and what it had already sent goes its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from simulation.universe.loop import Pipe, VirtualLoop, owner


class Killed(BaseException):
    """The process that tries this is dead."""


class Life:
    """From start to death; `die_at` is the step at which death comes, counted from the start."""

    def __init__(self, loop: VirtualLoop, *, die_at: int | None = None) -> None:
        self._loop = loop
        self._die_at = die_at
        self._struck = self.kill
        self._pipes: list[Pipe] = []
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.alive = True
        self.steps = 0
        self.died = loop.create_future()
        self.last = ""

    def begin(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> asyncio.Task[Any]:
        """Run the process's main coroutine in its own name."""
        context = self._loop.world.copy()
        context.run(owner.set, self)
        return context.run(lambda: self._loop.create_task(work(), context=context))

    def owns(self, pipe: Pipe) -> None:
        """Shut this when we die."""
        self._pipes.append(pipe)

    def step(self, what: str) -> None:
        """Count a turn of one of our tasks, after which death may come."""
        self._count(what)

    def act(self, what: str) -> None:
        """Count an effect on the outside, before which death may come; the dead have none."""
        self._count(what)
        if not self.alive:
            raise Killed(what)

    def doom(self, steps: int, *, struck: Callable[[], None] | None = None) -> None:
        """Let it die so many steps from now, or something else happen then."""
        self._die_at = self.steps + steps
        self._struck = struck or self.kill

    def spare(self) -> None:
        """Let it live, whatever was meant for it."""
        self._die_at = None

    def kill(self) -> None:
        """End at once."""
        if not self.alive:
            return
        self.alive = False
        for pipe in self._pipes:
            pipe.sever()
        for task in list(self.tasks):
            task.cancel()
        if not self.died.done():
            self.died.set_result(None)

    def _count(self, what: str) -> None:
        if not self.alive:
            return
        self.steps += 1
        self.last = what
        if self._die_at is not None and self.steps >= self._die_at:
            self._die_at = None
            self._struck()


class _Stepped(Coroutine[Any, Any, Any]):
    """A coroutine whose every turn is a step of its process."""

    def __init__(self, work: Coroutine[Any, Any, Any], life: Life) -> None:
        self._work = work
        self._life = life
        self.task: asyncio.Task[Any] | None = None

    def send(self, value: Any) -> Any:
        return self._turn(lambda: self._work.send(value))

    def throw(self, *error: Any) -> Any:
        return self._turn(lambda: self._work.throw(*error))

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()

    def _turn(self, go_on: Callable[[], Any]) -> Any:
        try:
            return go_on()
        except BaseException:
            if self.task is not None:
                self._life.tasks.pop(self.task, None)
            raise
        finally:
            self._life.step(getattr(self._work, "__qualname__", "?"))


def make_task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
    """Make tasks so that those of a process are counted and end with it."""
    life = more["context"].get(owner) if more.get("context") is not None else owner.get()
    if not isinstance(life, Life):
        return asyncio.Task(work, loop=loop, **more)
    stepped = _Stepped(work, life)
    stepped.task = task = asyncio.Task(stepped, loop=loop, **more)
    life.tasks[task] = None
    if not life.alive:
        task.cancel()
    return task
