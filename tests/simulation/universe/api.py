"""The API server of the simulation, and the network before it: late, cut, repeating itself, silent, away.

What was sent is on its way whatever becomes of the sender: a client that gave up, or died, may have its write done
seconds later. So each question travels in a task of the world, and its asker only waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from aliquot_core.objects import Lease, Node, Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError, ServerTroubleError, ThrottledError, UnreachableError
from aliquot_kube.resources import LEASES
from aliquot_kube.transport import Question, Response, Transport
from aliquot_standalone.apiserver.direct import DirectTransport
from aliquot_standalone.apiserver.embedded import seeded_fresh
from aliquot_standalone.apiserver.frontend import Frontend
from aliquot_standalone.apiserver.store import Change, Store
from aliquot_standalone.apiserver.streaming import Timing
from simulation.universe.chance import Chance
from simulation.universe.life import Life
from simulation.universe.loop import EPOCH, LoopClock, VirtualLoop

# How many changes the server remembers: few, so that a watcher that was away too long is told 410.
REMEMBERED = 64
# A server gives a request up after a minute.
LANDS_WITHIN = 55.0
GONE = msgspec.json.encode(
    {"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410}}
)


# What comes over a watch: lines, an error, or None at its end in good order.
_Belt = asyncio.Queue[bytes | ApiError | None]


class Weather(msgspec.Struct, kw_only=True):
    """How bad the network is; all zero for none of it."""

    lag: float = 0.001
    slow: float = 0.0
    refused: float = 0.0
    trouble: float = 0.0
    lost_question: float = 0.0
    lost_answer: float = 0.0
    cut_line: float = 0.0
    doubled_line: float = 0.0
    gone_line: float = 0.0
    late_line: float = 0.0
    # Of bindings alone: those that land up to a minute later, and those of which no word comes back.
    slow_binding: float = 0.0
    lost_binding: float = 0.0


STORM = Weather(
    lag=0.02,
    slow=0.02,
    refused=0.01,
    trouble=0.02,
    lost_question=0.01,
    lost_answer=0.01,
    cut_line=0.02,
    doubled_line=0.05,
    gone_line=0.01,
    late_line=0.1,
)


class _Network:
    """What happens to a question and its answer."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.weather = Weather()
        self.away = False

    async def on_question(self, question: Question) -> None:
        """Before the server sees it."""
        chance, weather = self.chance, self.weather
        await asyncio.sleep(chance.about(weather.lag))
        if self.away or chance.happens(weather.refused):
            raise UnreachableError("connection refused", where=question.where)
        if chance.happens(weather.trouble):
            status = chance.choice((500, 503, 504, 429))
            kind = ThrottledError if status == 429 else ServerTroubleError
            raise kind("a fault of the simulation", where=question.where, status=status)
        if chance.happens(weather.lost_question):
            await asyncio.sleep(3600.0)
        if chance.happens(weather.slow):
            # Also longer than a beat may take: the write is done when its writer no longer waits for it.
            await asyncio.sleep(chance.uniform(0.5, 8.0))
        if is_binding(question) and chance.happens(weather.slow_binding):
            await asyncio.sleep(chance.uniform(0.5, LANDS_WITHIN))

    async def on_answer(self, question: Question) -> None:
        """After the server has acted."""
        await asyncio.sleep(self.chance.about(self.weather.lag))
        lost = self.weather.lost_binding if is_binding(question) else 0.0
        if self.chance.happens(max(lost, self.weather.lost_answer)):
            await asyncio.sleep(3600.0)
        if self.away:
            raise UnreachableError("the connection broke", where=question.where)


class _Way:
    """The network as one process has it: what happens to the lines of its watches."""

    def __init__(self, network: _Network) -> None:
        self._network = network
        self._last: dict[str, bytes] = {}
        self.on_question = network.on_question
        self.on_answer = network.on_answer

    async def on_line(self, question: Question, line: bytes) -> Sequence[bytes]:
        """A line of a watch on its way; one that comes twice may come after what came before it."""
        chance, weather = self._network.chance, self._network.weather
        last, self._last[question.path] = self._last.get(question.path), line
        if chance.happens(weather.late_line):
            await asyncio.sleep(chance.about(1.0))
        if chance.happens(weather.cut_line):
            raise UnreachableError("the watch broke", where=question.where)
        if chance.happens(weather.gone_line):
            return (GONE,)
        if chance.happens(weather.doubled_line):
            return (last, line, line) if last else (line, line)
        return (line,)


def is_binding(question: Question) -> bool:
    """Whether a pod is to be bound by it."""
    return question.path.endswith("/binding")


class ApiServer:
    """One API server: asked through a wire, looked into from outside by tests."""

    def __init__(self, *, loop: VirtualLoop, clock: LoopClock, seed: int, bookmark: float) -> None:
        self._loop = loop
        self._clock = clock
        self._network = _Network(Chance(seed, "network"))
        self._store = Store(keep=REMEMBERED)
        self._frontend = Frontend(fresh=seeded_fresh(Chance(seed, "identities")), now=EPOCH, store=self._store)
        self._timing = Timing(bookmark=bookmark)
        self._calm = DirectTransport(frontend=self._frontend, clock=clock)
        self._belts: dict[_Belt, None] = {}
        # The way of those who are not under test.
        self.client = KubeClient(transport=self._calm)

    # --- what happens to it ------------------------------------------------------------------------------------------
    def weather(self, weather: Weather) -> None:
        """Let the network be as bad as that from now on."""
        self._network.weather = weather

    def trouble_bindings(self, *, slow: float, lost: float) -> None:
        """Let so many of them land late, or no word of them come back."""
        self._network.weather = msgspec.structs.replace(self._network.weather, slow_binding=slow, lost_binding=lost)

    def go_away(self) -> None:
        """Let every connection break, and no new one come about."""
        self._network.away = True
        self.cut_watches()

    def come_back(self) -> None:
        """Answer again."""
        self._network.away = False

    def cut_watches(self) -> None:
        """Let every watch break."""
        for belt in self._belts:
            belt.put_nowait(UnreachableError("the watch broke"))

    @property
    def reachable(self) -> bool:
        """Whether it answers anybody."""
        return not self._network.away

    def compact(self) -> None:
        """Forget the past: watches that are not up to date are told 410."""
        self._store.compact(self._store.version)

    # --- what is in it -----------------------------------------------------------------------------------------------
    def subscribe(self, listener: Callable[[str, Change], None]) -> None:
        """Tell somebody of each write, at once."""
        self._store.subscribe(listener)

    def pods(self, node: str = "") -> list[Pod]:
        """All pods, or a node's, as they are now."""
        found = [_decode(one.raw, Pod) for one in self._store.snapshot("pods")]
        return [pod for pod in found if not node or pod.spec.node_name == node]

    def raw(self, table: str) -> list[bytes]:
        """All objects of a table as they are on the wire."""
        return [one.raw for one in self._store.snapshot(table)]

    def pod(self, key: str) -> Pod | None:
        """One pod as it is now."""
        found = self._store.get("pods", key)
        return _decode(found.raw, Pod) if found else None

    def node(self, name: str) -> Node | None:
        """A node as it is now."""
        found = self._store.get("nodes", name)
        return _decode(found.raw, Node) if found else None

    def lease(self, namespace: str, name: str) -> Lease | None:
        """A lease as it is now."""
        found = self._store.get(_table(LEASES.group, LEASES.plural), f"{namespace}/{name}")
        return _decode(found.raw, Lease) if found else None

    # --- ways to it --------------------------------------------------------------------------------------------------
    def wire(self, life: Life) -> Transport:
        """The way of a process to the server, which ends with it."""
        way = _Way(self._network)
        direct = DirectTransport(frontend=self._frontend, clock=self._clock, faults=way, timing=self._timing)
        return _Wire(life=life, loop=self._loop, direct=direct, belts=self._belts)

    async def create(self, resource: Any, thing: dict[str, Any], *, namespace: str = "") -> Any:
        """Create an object from what a user would write."""
        path = resource.collection(namespace)
        body = msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **thing})
        question = Question(method="POST", path=path, body=body, content_type="application/json")
        return _decode((await self._calm.request(question)).body, resource.type)


def _table(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def _decode(raw: bytes, kind: Any) -> Any:
    return msgspec.json.decode(raw, type=kind)


class _Wire:
    """A process's connections."""

    def __init__(self, *, life: Life, loop: VirtualLoop, direct: DirectTransport, belts: dict[_Belt, None]) -> None:
        self._life = life
        self._loop = loop
        self._direct = direct
        self._belts = belts

    async def request(self, question: Question) -> Response:
        """Ask, and wait as long as the real transport would."""
        self._life.act(question.where)
        travelling = self._loop.spawn(self._travel(question), name="question")
        try:
            async with asyncio.timeout(question.timeouts.total):
                answer = await asyncio.shield(travelling)
        except TimeoutError as error:
            raise UnreachableError(f"no answer within {question.timeouts.total:g} s", where=question.where) from error
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def _travel(self, question: Question) -> Response | ApiError:
        """Carry it to the server and back, whether or not somebody still waits."""
        try:
            return await self._direct.request(question)
        except ApiError as error:
            return error

    @asynccontextmanager
    async def stream(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """Ask, and read line by line until the server ends it, the wire is cut or nothing was heard for too long."""
        self._life.act(question.where)
        belt: _Belt = asyncio.Queue()
        pump = asyncio.create_task(self._pump(question, belt))
        self._belts[belt] = None
        try:
            await _next(belt, question, seconds=question.timeouts.total)
            yield _lines(belt, question)
        finally:
            self._belts.pop(belt, None)
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    async def _pump(self, question: Question, belt: _Belt) -> None:
        """Lay on the belt that the stream is open, its lines, and how it ended."""
        try:
            async with self._direct.stream(question) as lines:
                belt.put_nowait(b"")
                async for line in lines:
                    belt.put_nowait(line)
            belt.put_nowait(None)
        except ApiError as error:
            belt.put_nowait(error)


async def _next(belt: _Belt, question: Question, *, seconds: float) -> bytes | None:
    try:
        async with asyncio.timeout(seconds):
            come = await belt.get()
    except TimeoutError as error:
        raise UnreachableError(f"nothing was heard for {seconds:g} s", where=question.where) from error
    if isinstance(come, ApiError):
        raise come
    return come


async def _lines(belt: _Belt, question: Question) -> AsyncIterator[bytes]:
    while (line := await _next(belt, question, seconds=question.timeouts.silence)) is not None:
        yield line
