"""AdmissionReview (admission.k8s.io/v1), as bytes in and bytes out.

Whatever can't be read is a MalformedReviewError, never another exception: the caller answers it with 400, and the API
server then refuses the pod, as it would if nobody answered. A field that is null says as little as one left out.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Generic, Literal, TypeVar

import msgspec

from aliquot_core.errors import ClusterError
from aliquot_core.objects import Pod

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
# Refused for what is in it, as a pod that Kubernetes itself finds invalid.
UNPROCESSABLE = 422
# The API server takes 256 characters of a warning without complaint.
LONGEST_WARNING = 256
# So many problems are told: a pod with thousands of containers may have as many.
MOST_PROBLEMS = 20
# Of each name and problem so much is logged: whoever reaches the port may call himself what he likes.
LONGEST_LOGGED = 300
# Their keys and values are their authors': a null among them is no field that was left out.
_FREE = frozenset({"labels", "annotations", "limits", "requests"})
# How API servers begin.
_BEGINNING = re.compile(
    rb'\s*\{"kind":"AdmissionReview","apiVersion":"admission\.k8s\.io/v1","request":\{"uid":"([-\w]{1,64})"'
)

T = TypeVar("T")
# One operation of a JSON Patch.
Operation = dict[str, Any]


class MalformedReviewError(ClusterError):
    """A body that no API server sends."""

    def __init__(self, what: str) -> None:
        super().__init__(what, where="AdmissionReview", remedy="only API servers speak to this address")


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Common settings of what travels."""


class User(Wire, frozen=True, kw_only=True):
    """Who asks."""

    username: str = ""
    groups: list[str] = []


class Asked(Wire, frozen=True, kw_only=True):
    """What every review asks, whatever it is about."""

    uid: str
    user_info: User = User()
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


A = TypeVar("A", bound=Asked)


class Envelope(Wire, Generic[A], frozen=True, kw_only=True):
    """What it is asked in."""

    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: A


class _Kind(Wire, frozen=True, kw_only=True):
    kind: Literal["Pod"]


class _Request(Asked, frozen=True, kw_only=True):
    kind: _Kind
    operation: Literal["CREATE", "UPDATE"]
    namespace: str = ""


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody creates or changes a pod."""

    uid: str
    namespace: str
    user: str
    groups: tuple[str, ...]
    pod: Pod
    # The same pod with all that it says: patches need to know what is there.
    document: dict[str, Any]
    # Before the change; None where it is created.
    old: Pod | None


_reviews = msgspec.json.Decoder(Envelope[_Request])
_pods = msgspec.json.Decoder(Pod)
_documents = msgspec.json.Decoder(dict[str, Any])


def decode_review(body: bytes) -> Review:
    """Read what the API server asks."""
    return without_nulls(_review_of, body)


def _review_of(body: bytes) -> Review:
    request = decoded(_reviews, body, what="body").request
    created = request.operation == "CREATE"
    return Review(
        uid=request.uid,
        namespace=request.namespace,
        user=request.user_info.username,
        groups=tuple(request.user_info.groups),
        pod=decoded(_pods, request.object, what="object"),
        document=decoded(_documents, request.object, what="object"),
        old=None if created else decoded(_pods, request.old_object, what="oldObject"),
    )


def encode_allowed(uid: str, *, patch: Sequence[Operation] = (), warnings: Sequence[str] = ()) -> bytes:
    """Let it pass, with what is changed of it."""
    answer: dict[str, Any] = {"allowed": True}
    if patch:
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
    return _answer(uid, answer, warnings=warnings)


def encode_refused(uid: str, *, problems: Sequence[str], warnings: Sequence[str] = ()) -> bytes:
    """Refuse it, with all that is wrong; several problems take a line each."""
    told = first_of(problems)
    message = told[0] if len(told) == 1 else "".join(f"\n- {problem}" for problem in told)
    status = {"status": "Failure", "code": UNPROCESSABLE, "message": message}
    return _answer(uid, {"allowed": False, "status": status}, warnings=warnings)


def encode_not_there(uid: str, *, why: str) -> bytes:
    """Refuse it as of one that is gone."""
    status = {"status": "Failure", "code": HTTPStatus.NOT_FOUND, "reason": "NotFound", "message": why}
    return _answer(uid, {"allowed": False, "status": status}, warnings=())


def first_of(problems: Sequence[str]) -> list[str]:
    """Those that are told, and how many are not."""
    more = len(problems) - MOST_PROBLEMS
    return [*problems[:MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]


def in_log(text: str) -> str:
    """As much of it as is logged."""
    return text if len(text) <= LONGEST_LOGGED else f"{text[:LONGEST_LOGGED]}…"


class _Said(msgspec.Struct):
    allowed: bool


class _Answered(msgspec.Struct):
    response: _Said


_answers = msgspec.json.Decoder(_Answered)


def is_allowed(answer: bytes) -> bool:
    """What an answer of ours says."""
    return _answers.decode(answer).response.allowed


def uid_of(beginning: bytes) -> str:
    """The UID of a review of which only the beginning was read; empty if it begins as none of an API server's."""
    found = _BEGINNING.match(beginning)
    return found[1].decode() if found else ""


def _answer(uid: str, answer: dict[str, Any], *, warnings: Sequence[str]) -> bytes:
    if warnings:
        answer |= {"warnings": [warning[:LONGEST_WARNING] for warning in warnings]}
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": {"uid": uid, **answer}})


def decoded(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw, *, what: str) -> T:
    """Read a part of a review."""
    try:
        return decoder.decode(body)
    except (ValueError, RecursionError) as error:
        raise MalformedReviewError(f"{what}: {error}") from None


def without_nulls(read: Callable[[bytes], T], body: bytes) -> T:
    """Read a review as it came; or where that can't be, without its nulls."""
    try:
        return read(body)
    except MalformedReviewError as error:
        try:
            bare = msgspec.json.encode(_bare(decoded(_documents, body, what="body")))
        except RecursionError:
            raise error from None
        return read(bare)


def _bare(value: Any) -> Any:
    if isinstance(value, list):
        return [_bare(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: one if key in _FREE and one else _bare(one) for key, one in value.items() if one is not None}
