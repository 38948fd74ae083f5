"""Refusals as the Kubernetes API words them: a Status object with a reason and a code that clients act upon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aliquot_core.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .catalogue import Resource


class Cause(msgspec.Struct, frozen=True):
    """One field that is wrong."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def required(field: str, message: str = "") -> Cause:
    """Say that a field must be there."""
    return Cause(field, "FieldValueRequired", f"Required value{_tail(message)}")


def wrong(field: str, value: object, message: str) -> Cause:
    """Say that a field's value can't be used."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}{_tail(message)}")


def forbidden_field(field: str, message: str) -> Cause:
    """Say that a field may not be set or changed here."""
    return Cause(field, "FieldValueForbidden", f"Forbidden{_tail(message)}")


def duplicate(field: str, value: object) -> Cause:
    """Say that a value occurs twice."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def unsupported(field: str, value: object, allowed: Sequence[str]) -> Cause:
    """Say that a value is none of those that are known."""
    known = ", ".join(f'"{one}"' for one in allowed)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {known}")


def too_long(field: str, most: int) -> Cause:
    """Say that a value exceeds a length."""
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")


def _tail(message: str) -> str:
    return f": {message}" if message else ""


def _shown(value: object) -> str:
    # A refused value may be huge or hostile; a person needs its beginning only.
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else text[:200] + "..."  # noqa: PLR2004 - as much as fits a terminal's two lines


class ApiError(UserError):
    """A request that is answered with a Status instead of what was asked for."""

    def __init__(
        self, what: str, *, code: int, reason: str, details: dict[str, Any] | None = None, resume: str = ""
    ) -> None:
        super().__init__(what)
        self.code = code
        self.reason = reason
        self.details = details
        # A token with which an expired list may go on, at the price of one instant.
        self.resume = resume

    def status(self) -> dict[str, Any]:
        """Give the Status object that travels to the client."""
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        if self.resume:
            body["metadata"] = {"continue": self.resume}
        body["message"] = self.what
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def success(*, code: int = 200, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """Give the Status of a request that has nothing else to answer."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        body["details"] = details
    if code == 201:  # noqa: PLR2004 - the API names the code only where something was created
        body["code"] = code
    return body


def _about(resource: Resource, name: str) -> dict[str, Any]:
    details = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    return details


def not_found(resource: Resource, name: str) -> ApiError:
    """No such object."""
    what = f'{resource.qualified} "{name}" not found'
    return ApiError(what, code=404, reason="NotFound", details=_about(resource, name))


def no_such_page() -> ApiError:
    """No such address at all."""
    return ApiError("the server could not find the requested resource", code=404, reason="NotFound", details={})


def already_exists(resource: Resource, name: str) -> ApiError:
    """An object of that name is there."""
    what = f'{resource.qualified} "{name}" already exists'
    return ApiError(what, code=409, reason="AlreadyExists", details=_about(resource, name))


def conflict(resource: Resource, name: str, why: str, *, subresource: str = "") -> ApiError:
    """The object is not (or no longer) as the writer thinks."""
    place = f"{resource.plural}/{subresource}" if subresource else resource.qualified
    details = _about(resource, name)
    details["kind"] = f"{resource.plural}/{subresource}" if subresource else resource.plural
    what = f'Operation cannot be fulfilled on {place} "{name}": {why}'
    return ApiError(what, code=409, reason="Conflict", details=details)


def stale(resource: Resource, name: str) -> ApiError:
    """Someone wrote in between."""
    return conflict(resource, name, "the object has been modified; read it again and repeat the change on what is new")


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    """The request is understood, and refused by a rule."""
    what = f'{resource.qualified} "{name}" is forbidden: {why}'
    return ApiError(what, code=403, reason="Forbidden", details=_about(resource, name))


def bad_request(why: str) -> ApiError:
    """The request itself can't be read."""
    return ApiError(why, code=400, reason="BadRequest")


def unauthorized() -> ApiError:
    """Nobody knows this caller."""
    return ApiError("Unauthorized", code=401, reason="Unauthorized")


def method_not_allowed() -> ApiError:
    """The resource has no such verb."""
    what = "the server does not allow this method on the requested resource"
    return ApiError(what, code=405, reason="MethodNotAllowed", details={})


def no_way_in(what: str) -> ApiError:
    """Nobody is led into a pod."""
    instead = "a pod here is a process of this machine, in its network and files; see `aliquot logs`, ps, curl"
    why = f"{what} needs a cluster: {instead}"
    return ApiError(why, code=405, reason="MethodNotAllowed", details={})


def not_acceptable(why: str) -> ApiError:
    """The client wants only formats that we do not speak."""
    return ApiError(why, code=406, reason="NotAcceptable")


def unsupported_media_type(why: str) -> ApiError:
    """The client sent a format that we do not speak."""
    return ApiError(why, code=415, reason="UnsupportedMediaType")


def too_large(limit: int) -> ApiError:
    """The body exceeds what the server reads."""
    what = f"Request entity too large: limit is {limit}"
    return ApiError(what, code=413, reason="RequestEntityTooLarge", details={})


def expired(why: str, *, resume: str = "") -> ApiError:
    """The wanted version has been compacted away: list again."""
    return ApiError(why, code=410, reason="Expired", resume=resume)


def version_in_future(wanted: int, newest: int) -> ApiError:
    """The wanted version has not happened yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    details = {"causes": [cause], "retryAfterSeconds": 1}
    what = f"Too large resource version: {wanted}, current: {newest}"
    return ApiError(what, code=504, reason="Timeout", details=details)


def unprocessable(why: str) -> ApiError:
    """The request is well formed and can't be carried out on this object."""
    return ApiError(why, code=422, reason="Invalid", details={})


def invalid_patch(why: str) -> ApiError:
    """What the patch would make of the object can't be read as one."""
    cause = wrong("patch", "", why)
    details = {"causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field}]}
    return ApiError(f" is invalid: {cause}", code=422, reason="Invalid", details=details)


def internal(reference: str) -> ApiError:
    """Our own defect; the log has the rest under the same reference."""
    return ApiError(f"internal error, see the server's log: {reference}", code=500, reason="InternalError")


def internal_because(why: str) -> ApiError:
    """Something that the server needs does not work."""
    details = {"causes": [{"message": why}]}
    return ApiError(f"Internal error occurred: {why}", code=500, reason="InternalError", details=details)


def needs_cluster(resource: Resource) -> ApiError:
    """Nothing here makes such objects work."""
    what = f"{resource.qualified} needs a cluster: this is one machine's API server, which runs pods, Jobs and CronJobs"
    return ApiError(what, code=403, reason="Forbidden", details=_about(resource, ""))


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> ApiError:
    """Fields of the object are wrong; all of them are named at once."""
    listed = "; ".join(str(cause) for cause in causes) if len(causes) == 1 else f"[{', '.join(map(str, causes))}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.kind
    details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return ApiError(f'{kind} "{name}" is invalid: {listed}', code=422, reason="Invalid", details=details)
