"""Whether a token is somebody's who may look: the API server is asked, and its answer is good for a minute."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from typing import Any, TypeVar

import msgspec

from aliquot_core.clock import Clock
from aliquot_kube.errors import ApiError
from aliquot_kube.transport import Question, Timeouts, Transport

log = logging.getLogger(__name__)

GOOD_FOR = 60.0
# A cookie has no room for more, and no token that we know of is longer.
LONGEST_TOKEN = 8192
_REMEMBERED = 256
# So many questions at once: whoever makes up tokens is not to keep the API server busy.
_AT_ONCE = 4
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_PATIENCE = Timeouts(connect=1.5, silence=3.0, total=4.0)
# What the page shows, in Kubernetes' own words.
_NEEDED = ("pods", "nodes")


class _User(msgspec.Struct, frozen=True, kw_only=True):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct, frozen=True, kw_only=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(msgspec.Struct, frozen=True, kw_only=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True, kw_only=True):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct, frozen=True, kw_only=True):
    status: _AccessStatus = _AccessStatus()


_Answer = TypeVar("_Answer", bound=msgspec.Struct)


class Reviewer:
    """Asks, and remembers by the token's digest."""

    def __init__(self, *, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def why_not(self, token: str) -> str:
        """Why whoever has this token may not look; empty if they may."""
        if not token or len(token) > LONGEST_TOKEN:
            return "Nobody may look without a token."
        digest, now = hashlib.sha256(token.encode()).digest(), self._clock.monotonic()
        until, why = self._known.get(digest, (float("-inf"), ""))
        if now < until:
            return why
        async with self._gate:
            try:
                why = await self._asked(token)
            except (ApiError, msgspec.DecodeError) as error:
                log.warning("the API server could not be asked who may look", extra={"error": str(error)})
                return "The API server could not be asked who you are; try again."
        self._known[digest] = now + GOOD_FOR, why
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return why

    async def _asked(self, token: str) -> str:
        said = await self._ask(_TOKENS, "TokenReview", {"token": token}, _TokenReview)
        if not said.status.authenticated:
            return "The API server does not know this token."
        user = said.status.user
        for resource in _NEEDED:
            wanted = {"verb": "list", "resource": resource}
            spec = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
            answer = await self._ask(
                _ACCESS, "SubjectAccessReview", spec | {"resourceAttributes": wanted}, _AccessReview
            )
            if answer.status.denied or not answer.status.allowed:
                return f"{user.username} may not list {resource} of the whole cluster."
        return ""

    async def _ask(self, path: str, kind: str, spec: dict[str, Any], answer: type[_Answer]) -> _Answer:
        version = path.removeprefix("/apis/").rpartition("/")[0]
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        question = Question(method="POST", path=path, body=body, content_type="application/json", timeouts=_PATIENCE)
        return msgspec.json.decode((await self._transport.request(question)).body, type=answer)
