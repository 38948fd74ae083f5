"""Which version a list shows, and how a long one is cut into pages that together show one instant."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import msgspec

from .failures import ApiError, bad_request, expired, forbidden_field, invalid, version_in_future, wrong

if TYPE_CHECKING:
    from .exchange import Request
    from .store import Revision
    from .terms import Selection, Target
    from .verbs import Api

_ANY_INSTANT = -1


class _Token(msgspec.Struct, frozen=True):
    """Where the next page begins. A version of -1 says: as things are now."""

    version: int
    after: str


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list."""

    revisions: list[Revision]
    metadata: dict[str, Any]


def _write_token(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _read_token(text: str) -> _Token:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise bad_request("continue key is not valid") from error


def list_page(api: Api, target: Target, request: Request, *, selection: Selection) -> Page:
    """Give the page that a request asks for."""
    limit = request.number("limit") or 0
    token = _token_of(request, target=target, newest=api.store.version, limit=limit)
    version = None if token.version in {_ANY_INSTANT, api.store.version} else token.version
    try:
        found = api.list(target, selection=selection, version=version, after=token.after)
    except ApiError as error:
        if not token.after:
            raise
        resume = _write_token(_Token(version=_ANY_INSTANT, after=token.after))
        raise expired("the list this token continues is too old; begin again without it", resume=resume) from error
    shown = api.store.version if version is None else version
    metadata: dict[str, Any] = {"resourceVersion": str(shown)}
    if limit and len(found) > limit:
        metadata["continue"] = _write_token(_Token(version=shown, after=found[limit - 1].key))
        if not selection.narrowed:
            metadata["remainingItemCount"] = len(found) - limit
        found = found[:limit]
    return Page(revisions=found, metadata=metadata)


def _token_of(request: Request, *, target: Target, newest: int, limit: int) -> _Token:
    version = request.number("resourceVersion")
    match = request.query.get("resourceVersionMatch", "")
    if text := request.query.get("continue", ""):
        if version:
            raise bad_request("specifying resource version is not allowed when using continue")
        token = _read_token(text)
        if not token.after.startswith(target.prefix) or token.version > newest:
            raise bad_request("continue key is not valid")
        return token
    _check_match(match, version, target=target)
    if version is not None and version > newest:
        raise version_in_future(version, newest)
    exact = match == "Exact" or (not match and limit and version)
    return _Token(version=version if exact and version is not None else newest, after="")


def _check_match(match: str, version: int | None, *, target: Target) -> None:
    field = "resourceVersionMatch"
    if not match:
        return
    if match not in {"Exact", "NotOlderThan"}:
        raise invalid(target.resource, "", [wrong(field, match, "Exact or NotOlderThan")])
    if version is None:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise invalid(target.resource, "", [forbidden_field(field, why)])
    if match == "Exact" and version == 0:
        raise invalid(target.resource, "", [forbidden_field(field, 'Exact is forbidden for resourceVersion "0"')])
