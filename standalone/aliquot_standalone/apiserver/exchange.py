"""A request and its answer, without a wire: what the HTTP front and the in-process transport both carry."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from .failures import bad_request
from .logs import LogWish
from .watching import Notice, Watch


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the API. `path` is split at slashes and each part unquoted."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str] = {}
    accept: str = ""
    content_type: str = ""
    body: bytes = b""
    user: str = ""
    # What program sends it.
    agent: str = ""

    def flag(self, name: str) -> bool:
        """Tell whether a query parameter says yes."""
        return self.query.get(name, "").lower() in {"1", "true", "t"}

    def number(self, name: str) -> int | None:
        """Read a query parameter that is a number, if it is there."""
        text = self.query.get(name, "")
        if not text:
            return None
        if not text.isdecimal() or not text.isascii() or len(text) > 18:  # noqa: PLR2004 - beyond 63 bits
            raise bad_request(f'Invalid value: "{text}" of {name}: must be a number, 0 or more')
        return int(text)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    code: int = 200
    body: bytes
    content_type: str = "application/json"
    # For the user, beside the answer.
    warnings: tuple[str, ...] = ()


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that goes on: lines to begin with, then what the watch gives until the time is over."""

    opening: list[bytes]
    watch: Watch
    render: Callable[[Notice], bytes]
    bookmark: Callable[[int], bytes] | None
    timeout: float | None
    # The opening is all there is to say: the watch came too late.
    finished: bool = False


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is a container's log, which lies elsewhere."""

    wish: LogWish


Result = Answer | Stream | Log
