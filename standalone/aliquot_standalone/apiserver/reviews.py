"""AdmissionReview: the question to a webhook as bytes, and its answer read."""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from .failures import ApiError
from .patches import json_patch

if TYPE_CHECKING:
    from .acts import Act, Caller
    from .store import Json

_REASONS = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 422: "Invalid"}


class BadReviewError(ValueError):
    """What came back is no answer to the question."""


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    message: str = ""
    reason: str = ""
    code: int = 0


class _Response(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    uid: str
    allowed: bool
    status: _Status = _Status()
    patch_type: str = ""
    patch: str = ""
    warnings: list[str] = []


class _Review(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    kind: str
    api_version: str
    response: _Response


_decode = msgspec.json.Decoder(_Review).decode


def request_of(act: Act, caller: Caller, *, uid: str) -> Json:
    """Give the request of a review: what conditions and webhooks see of a write."""
    resource = act.resource
    address = {"group": resource.group, "version": resource.version}
    found: Json = {
        "uid": uid,
        "kind": {**address, "kind": resource.kind},
        "resource": {**address, "resource": resource.plural},
        "requestKind": {**address, "kind": resource.kind},
        "requestResource": {**address, "resource": resource.plural},
        "name": act.name,
        "operation": act.operation,
        "userInfo": {"username": caller.user, "groups": list(caller.groups)},
        "object": act.with_kind(act.obj),
        "oldObject": act.with_kind(act.old),
        "dryRun": act.dry_run,
        "options": {"kind": f"{act.operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"},
    }
    if resource.namespaced:
        found["namespace"] = act.target.namespace
    if act.target.subresource:
        found["subResource"] = found["requestSubResource"] = act.target.subresource
    return found


def question(request: Json) -> bytes:
    """Spell a review."""
    return msgspec.json.encode({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


def answer(body: bytes, *, uid: str) -> _Response:
    """Read the answer to a review; raises `BadReviewError` where it is none."""
    try:
        review = _decode(body)
    except (ValueError, RecursionError) as error:
        raise BadReviewError(f"the answer can't be read: {error}") from error
    if (review.kind, review.api_version) != ("AdmissionReview", "admission.k8s.io/v1"):
        raise BadReviewError(f"expected an AdmissionReview of v1, got {review.kind} of {review.api_version}")
    if review.response.uid != uid:
        raise BadReviewError(f"expected response.uid={uid!r}, got {review.response.uid!r}")
    return review.response


def refusal(response: _Response, *, webhook: str) -> ApiError:
    """Tell the client that a webhook refuses, and why."""
    status = response.status
    denied = f'admission webhook "{webhook}" denied the request'
    why = f": {status.message or status.reason}" if status.message or status.reason else " without explanation"
    code = max(status.code, HTTPStatus.BAD_REQUEST)
    return ApiError(denied + why, code=code, reason=status.reason or _REASONS.get(code, ""))


def patched(obj: Json, response: _Response) -> Json:
    """Lay a webhook's patch over an object, which stays as it is."""
    if not response.patch:
        return obj
    if response.patch_type != "JSONPatch":
        raise BadReviewError(f"unsupported patch type {response.patch_type!r}")
    try:
        operations: Any = msgspec.json.decode(base64.b64decode(response.patch, validate=True))
        changed = json_patch(obj, operations)
    except (binascii.Error, ValueError, ApiError) as error:
        raise BadReviewError(f"the patch can't be carried out: {error}") from error
    if not isinstance(changed, dict) or not isinstance(changed.get("metadata"), dict):
        raise BadReviewError("the patch leaves no object")
    return changed
