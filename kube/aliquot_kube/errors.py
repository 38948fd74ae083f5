"""What can go wrong between us and the API server, named by what the caller can do about it.

Whose fault it is comes from `aliquot_core.errors`: nearly everything here is the cluster's; `InvalidError` is ours,
since Aliquot wrote a request that breaks the API's own rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from aliquot_core.errors import AliquotError, ClusterError, DefectError

_MESSAGE_LIMIT = 2_000
_UID = "metadata.uid"
# What msgspec raises for bytes that are not the JSON we want: text that is not UTF-8 and nesting without end included.
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class StatusCause(msgspec.Struct, frozen=True, kw_only=True):
    """One reason among those that a `Status` lists."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a `Status` says beyond its sentence."""

    retry_after_seconds: float | None = None
    causes: list[StatusCause] | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The API server's own words for a failure, in a body or in a watch's ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None

    @property
    def retry_after(self) -> float | None:
        """The wait the server asks for, if it does."""
        return self.details.retry_after_seconds if self.details else None

    @property
    def fields(self) -> list[str]:
        """The fields that its causes name."""
        return [cause.field for cause in (self.details.causes if self.details else None) or []]

    @property
    def reasons(self) -> list[str]:
        """Its own reason and those of its causes."""
        causes = (self.details.causes if self.details else None) or []
        return [self.reason, *(cause.reason for cause in causes)]


class ApiError(AliquotError):
    """Root of this package's errors; `status` is 0 when no HTTP answer came."""

    # What to do about it, unless whoever raises it knows better.
    usual_remedy = ""

    def __init__(
        self, what: str, *, where: str = "", remedy: str = "", status: int = 0, retry_after: float | None = None
    ) -> None:
        super().__init__(what, where=where, remedy=remedy or self.usual_remedy)
        self.status = status
        self.retry_after = retry_after


class UnreachableError(ApiError, ClusterError):
    """No answer, or not a whole one: refused, timed out, cut, closed."""

    usual_remedy = "is the API server up and reachable?"


class GarbledError(ApiError, ClusterError):
    """Bytes came that are no answer of an API server: a proxy's page, a broken line."""

    usual_remedy = "check that the address is an API server's and that no proxy answers in its place"


class TooManyError(ApiError, ClusterError):
    """There are more objects than whoever asks would read."""


class UnauthorizedError(ApiError, ClusterError):
    """401: the API server does not know us."""

    usual_remedy = "check the service account's token or the kubeconfig's user"


class ForbiddenError(ApiError, ClusterError):
    """403: it knows us and says no; its own words name the missing right or the policy."""

    usual_remedy = "give Aliquot's service account the right that is named"


class NotFoundError(ApiError, ClusterError):
    """404: no such object, or no such resource."""


class ConflictError(ApiError, ClusterError):
    """409: somebody else wrote first; read again and decide again."""


class AlreadyExistsError(ConflictError):
    """409 to a create: the name is taken."""


class GoneError(ApiError, ClusterError):
    """410: the version asked for is compacted away; list again."""


class ThrottledError(ApiError, ClusterError):
    """429: too much at once; `retry_after` is the server's wish."""


class DisruptionBlockedError(ThrottledError):
    """429 to an eviction: a PodDisruptionBudget forbids it for now."""


class ServerTroubleError(ApiError, ClusterError):
    """5xx: the API server, a webhook or etcd behind it has trouble."""


class InvalidError(ApiError, DefectError):
    """Any other 4xx: Aliquot asked for something that the API's rules forbid."""


class UnconfiguredError(ApiError, ClusterError):
    """No usable way to an API server: no kubeconfig, no service account, a failing exec plugin."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    HTTPStatus.UNAUTHORIZED: UnauthorizedError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.GONE: GoneError,
    HTTPStatus.TOO_MANY_REQUESTS: ThrottledError,
}
# What a 4xx means more closely, by the reason or a cause that the API server gives.
_CLOSER: Mapping[tuple[int, str], type[ApiError]] = {
    (HTTPStatus.CONFLICT, "AlreadyExists"): AlreadyExistsError,
    (HTTPStatus.TOO_MANY_REQUESTS, "DisruptionBudget"): DisruptionBlockedError,
}


# Made by whoever imports this and not at the first failure: failures are read in threads, and msgspec shows one thread
# the half-made reading of a type that another one is making. Two first failures at once ended the process.
_status = msgspec.json.Decoder(Status)


def error_from_status(status: Status, *, where: str, retry_after: float | None = None) -> ApiError:
    """Name the failure that a `Status` tells of."""
    return _kind(status)(
        status.message or status.reason or f"HTTP status {status.code}",
        where=where,
        status=status.code,
        retry_after=retry_after if retry_after is not None else status.retry_after,
    )


def error_from_response(*, code: int, headers: Mapping[str, str], body: bytes, where: str) -> ApiError:
    """Name the failure that an HTTP answer tells of, whatever its body is."""
    try:
        told = _status.decode(body)
    except NOT_JSON:
        told = Status(message=body[:_MESSAGE_LIMIT].decode("utf-8", "replace").strip())
    # The HTTP status is what counts: proxies answer without a Status, and a Status may lack its code.
    status = Status(code=code, reason=told.reason, message=told.message, details=told.details)
    return error_from_status(status, where=where, retry_after=_seconds(headers.get("retry-after")))


def _kind(status: Status) -> type[ApiError]:
    if status.code == HTTPStatus.UNPROCESSABLE_ENTITY and _UID in status.fields:
        # A patch carries a uid only so that it meets that very object: another one bears the name now.
        return ConflictError
    for reason in status.reasons:
        if (status.code, reason) in _CLOSER:
            return _CLOSER[status.code, reason]
    if status.code in _BY_STATUS:
        return _BY_STATUS[status.code]
    if status.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServerTroubleError
    return InvalidError if status.code >= HTTPStatus.BAD_REQUEST else GarbledError


def _seconds(header: str | None) -> float | None:
    # The other form of the header, a date, is not used by Kubernetes.
    return float(header) if header is not None and header.strip().isdigit() else None
