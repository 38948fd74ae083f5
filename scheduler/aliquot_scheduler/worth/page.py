"""A mix as it is stored, between two leaders: a page that was spoilt is told from one that is whole."""

from __future__ import annotations

from typing import Annotated

import msgspec

from aliquot_core.errors import ClusterError
from aliquot_core.instants import second_time, seconds_of
from aliquot_scheduler.worth.mix import Shape

# Of a ConfigMap's 1 MiB. Four hundred shapes take 40 KB, unless somebody writes patterns of 4 KB on pods.
LONGEST_PAGE = 500_000
# Clocks of API servers and ours differ.
_SKEW = 3600.0

Count = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class MixPageError(ClusterError):
    """What was stored of a mix can't be meant."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A book as it is stored: counts by shape, and up to which creation time pods are in it."""

    counts: list[tuple[Shape, Count]] = []
    requests: Annotated[int, msgspec.Meta(ge=0)] = 0
    until: str = ""


def encode_page(page: Page) -> str:
    """As it is written into a ConfigMap; where it would be too long for one, without what is asked for least."""
    while len(text := msgspec.json.encode(page)) > LONGEST_PAGE:
        page = msgspec.structs.replace(page, counts=page.counts[: len(page.counts) // 2])
    return text.decode()


def decode_page(text: str, *, now: float) -> Page:
    """Read what `encode_page` wrote; `now` is in seconds since 1970.

    Of a page from beyond its end is taken back to now, or no new pod would be counted until then: either clock may have
    been set back. Pods that are there may then count once more, and what was learnt is not lost.
    """
    try:
        page = msgspec.json.decode(text, type=Page)
    except msgspec.MsgspecError as error:
        raise _refusal(str(error)) from error
    if why := _oddity(page):
        raise _refusal(why)
    beyond = page.until and (seconds_of(page.until) or 0.0) > now + _SKEW
    return msgspec.structs.replace(page, until=second_time(now)) if beyond else page


def _oddity(page: Page) -> str:
    if any(bool(shape.gpus) != bool(shape.size) for shape, _ in page.counts):
        return "GPUs without a part of them, or a part without GPUs"
    if not page.until:
        return ""
    until = seconds_of(page.until)
    if until is None or second_time(until) != page.until:
        return f"`until` is no time: {page.until[:40]!r}"
    return ""


def _refusal(why: str) -> MixPageError:
    return MixPageError(f"the stored mix can't be read: {why}", where="worth", remedy="it is learnt anew")
