"""Ten times a second: reads what containers used, and writes how much each may use until the next time.

Once a sample it is told what the driver says of memory; what a container holds beyond its account counts against its
limit from then on.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from aliquot_agent.isolation.allowance import Allowed
from aliquot_agent.isolation.beyond import Excess, Measured, Owner, Whose, accounted, since_restart
from aliquot_agent.isolation.limits_file import WHOLE, GpuLimits, Meter
from aliquot_agent.isolation.open_slices import OpenSlices
from aliquot_agent.isolation.pacing import Pace, Seen, Share, begun_anew, next_beat
from aliquot_agent.isolation.slice_files import MIB, PERCENT, SliceFiles, owner_of
from aliquot_agent.isolation.unpaid import Unpaid
from aliquot_core.clock import Clock

log = logging.getLogger(__name__)

BEAT_S = 0.1
# A sample is accounted for within so many beats after it was taken.
_REMEMBERED = 30
_LEAST = 0.01
# Two descriptors for each: a process has some thousand, and needs others.
_MOST_OPEN = 200
_SECOND = 1_000_000_000


class _Slice(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of one container."""

    limits: GpuLimits
    files: OpenSlices
    index: int
    meter: Meter
    accounted: int


class _Book:
    """What the account said of one slice in the last beats, and what the driver said beyond it."""

    def __init__(self, *, owner: Owner | None, excess: Excess, file: int, unpaid: Unpaid) -> None:
        self.file = file
        self.owner = owner
        self.said: deque[int] = deque(maxlen=_REMEMBERED)
        self.excess = excess
        self.unpaid = unpaid

    def whose(self, gpu: str) -> Whose:
        """Of whom it is, as samples name it."""
        return (self.owner.pod, self.owner.container, gpu) if self.owner else ("", "", gpu)


class Pacemaker:
    """The paces of one node's slices."""

    def __init__(
        self,
        *,
        files: SliceFiles,
        clock: Clock,
        throttled: Callable[[], Collection[Whose]] = frozenset,
        allowed: Callable[[], Mapping[Whose, Allowed]] = dict,
    ) -> None:
        """`throttled` are slices that get no idle compute, `allowed` is what each may have now, as far as known."""
        self._allowed = allowed
        self._throttled = throttled
        self._files = files
        self._clock = clock
        self._paces: dict[str, dict[str, Pace]] = {}
        self._since = 0
        # Beats of a GPU that failed, by the kind of fault.
        self._faults = Counter[str]()
        # By container's folder.
        self._open: dict[str, OpenSlices] = {}
        # By container's folder and GPU.
        self._books: dict[tuple[str, str], _Book] = {}
        self._enlarged: set[Owner] = set()

    @property
    def faults(self) -> Mapping[str, int]:
        """How often the pacing of a GPU failed, by the kind of fault."""
        return self._faults

    @property
    def unpaid(self) -> Mapping[Whose, int]:
        """How many launches of each slice passed unpaid since it was looked at first."""
        return {book.whose(gpu): book.unpaid.count for (_, gpu), book in self._books.items() if book.owner}

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self.beat()
            await self._clock.sleep(BEAT_S)

    def beat(self) -> None:
        """One beat for all GPUs."""
        now = round(self._clock.monotonic() * _SECOND)
        by_gpu: defaultdict[str, dict[str, _Slice]] = defaultdict(dict)
        books: dict[tuple[str, str], _Book] = {}
        allowed = self._allowed()
        for name, own in self._opened():
            for one in _slices(own):
                book = books[name, one.limits.uuid] = self._book(name, one, now=now)
                by_gpu[one.limits.uuid][name] = _as_it_is(one, book, allowed=allowed)
        self._books = books
        throttled = self._throttled()
        self._paces = {
            gpu: self._paced(gpu, slices, before=self._paces.get(gpu, {}), throttled=throttled, now=now)
            for gpu, slices in by_gpu.items()
        }
        self._since = now
        for name in [*self._open][_MOST_OPEN:]:
            self._open.pop(name).close()

    def _opened(self) -> Iterator[tuple[str, OpenSlices]]:
        """The files of each container that has them; those that are being replaced come with the next beat."""
        before, self._open = self._open, {}
        for name in self._files.tokens():
            own = before.pop(name, None)
            try:
                if own is None or not own.is_current():
                    if own is not None:
                        own.close()
                    own = OpenSlices(self._files.folder_of(name))
            except OSError as error:
                log.debug("no account", extra={"container": name, "error": str(error)})
                continue
            self._cut_back(own)
            yield name, own
            self._open[name] = own
        for own in before.values():
            own.close()

    def _cut_back(self, own: OpenSlices) -> None:
        """An account is as large as it was made; told of once a sample."""
        try:
            cut = own.cut_back()
        except OSError as error:
            log.warning("an account can't be cut back", extra={"container": own.own.name, "error": str(error)})
            return
        if cut and (owner := owner_of(own.own)) and owner not in self._enlarged:
            self._enlarged.add(owner)
            log.warning("a container made its account larger", extra={"owner": str(owner)})

    def enlarged(self) -> set[Owner]:
        """Who made the account larger since this was asked last."""
        found, self._enlarged = self._enlarged, set()
        return found

    def measured(self, told: Measured) -> None:
        """Take in what the driver says that containers hold."""
        for (_, gpu), book in self._books.items():
            driver = told.get(book.whose(gpu)) if book.owner else None
            before, book.excess = book.excess, book.excess.then(driver=driver, account=max(book.said, default=0))
            if book.excess.lasting > before.lasting:
                log.warning(
                    "a container holds memory that is in no account",
                    extra={"owner": str(book.owner), "gpu": gpu, "bytes": book.excess.lasting},
                )

    def _book(self, name: str, one: _Slice, *, now: int) -> _Book:
        """The slice's, begun with what stands in its limits: an agent before us may have found it."""
        book = self._books.get((name, one.limits.uuid))
        if book is None or book.file != one.files.file:
            excess, unpaid = since_restart(one.limits.unaccounted), Unpaid(said=one.meter.escapes, at=now)
            book = _Book(owner=owner_of(one.files.own), excess=excess, file=one.files.file, unpaid=unpaid)
        book.said.append(one.accounted)
        book.unpaid = book.unpaid.then(one.meter.escapes, now=now)
        return book

    def _paced(
        self, gpu: str, slices: dict[str, _Slice], *, before: dict[str, Pace], throttled: Collection[Whose], now: int
    ) -> dict[str, Pace]:
        shares = {
            name: _share(one.limits, throttled=self._books[name, one.limits.uuid].whose(one.limits.uuid) in throttled)
            for name, one in slices.items()
        }
        seen = {name: seen_of(one.meter) for name, one in slices.items()}
        try:
            paces = next_beat(shares, before, seen, now=now, since=self._since)
        except Exception as error:  # noqa: BLE001 - a defect of ours, and it is logged: the agent goes on
            self._failed(error, gpu=gpu)
            paces = begun_anew(shares, before)
        for name, pace in paces.items():
            _write(slices[name], pace, now=now)
        return paces

    def _failed(self, error: Exception, *, gpu: str) -> None:
        """Count it; the log has the first of each kind, as there are ten beats a second."""
        kind = type(error).__name__
        self._faults[kind] += 1
        if self._faults[kind] == 1:
            log.error("a GPU could not be paced; its slices have their guarantees", extra={"gpu": gpu}, exc_info=error)


def _slices(own: OpenSlices) -> list[_Slice]:
    """What a container says of each of its GPUs; nothing where its account is none."""
    account = own.account()
    if account is None:
        return []
    return [
        _Slice(limits=limits, files=own, index=at, meter=account.meters[at], accounted=accounted(account, gpu=at))
        for at, limits in enumerate(own.limits)
    ]


def _as_it_is(one: _Slice, book: _Book, *, allowed: Mapping[Whose, Allowed]) -> _Slice:
    """The slice with what is beyond its account, and what it may have now; of whom nothing is known it stays."""
    limits = msgspec.structs.replace(one.limits, unaccounted=book.excess.lasting)
    if now := allowed.get(book.whose(one.limits.uuid)):
        limits = msgspec.structs.replace(limits, memory=now.memory * MIB, limit=now.limit * PERCENT)
    return msgspec.structs.replace(one, limits=limits)


def _share(limits: GpuLimits, *, throttled: bool) -> Share:
    guarantee = limits.guarantee / WHOLE
    # Best effort has no guarantee, and what waits for ever never gives back what it holds.
    limit = max(guarantee, _LEAST) if throttled else max(limits.limit / WHOLE, guarantee)
    return Share(guarantee=guarantee, limit=limit)


def seen_of(meter: Meter) -> Seen:
    """A meter's counters as pacing takes them."""
    return Seen(
        in_flight=meter.in_flight,
        busy=meter.busy,
        moments=meter.moments,
        charged=meter.charged,
        held=meter.held,
        wanted=meter.wanted,
    )


def _write(one: _Slice, pace: Pace, *, now: int) -> None:
    fresh = msgspec.structs.replace(
        one.limits, rate=round(pace.rate * WHOLE), weight=round(pace.weight * WHOLE), beat=now
    )
    try:
        one.files.write(fresh, gpu=one.index)
    except OSError as error:
        log.debug("no limits", extra={"container": one.files.own.name, "error": str(error)})
