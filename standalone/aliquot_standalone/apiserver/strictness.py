"""Fields that a custom kind does not know: dropped in silence, told of, or refused, as the client wants it.

A cluster answers by `fieldValidation`: Ignore, Warn (where nothing is said) or Strict, which kubectl asks for. What is
applied by the server must be declared in the schema, whatever the client says. Of metadata nothing is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import schemas
from .catalogue import Resource
from .failures import Cause, bad_request, invalid, unsupported, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from .acts import Caller
    from .exchange import Request
    from .failures import ApiError
    from .store import Json
    from .terms import Target

_LEVELS = ("", "Ignore", "Strict", "Warn")


class Strictness:
    """What is to become of unknown fields in one request."""

    def __init__(self, target: Target, request: Request, *, caller: Caller) -> None:
        self._resource = target.resource
        self._caller = caller
        self._level = request.query.get("fieldValidation", "")
        if self._level not in _LEVELS:
            options = Resource(group="meta.k8s.io", plural="", singular="", kind="WriteOptions")
            raise invalid(options, "", [unsupported("fieldValidation", self._level, _LEVELS)])

    def check_whole(self, obj: Json) -> None:
        """Of an object that was sent as a whole."""
        kind, version = self._resource.kind, self._resource.version
        self._check(obj, lambda why: bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}'))

    def check_patched(self, obj: Json, patch: Any) -> None:
        """Of what a patch has made."""
        self._check(obj, lambda why: invalid(self._resource, "", [wrong("patch", patch, why)]))

    def check_applied(self, config: Json) -> None:
        """Of a configuration that the server is to apply."""
        if unknown := self._unknown(config):
            causes = [Cause(path, "FieldValueInvalid", "field not declared in schema") for path in unknown]
            raise invalid(self._resource, config["metadata"].get("name", ""), causes)

    def _check(self, obj: Json, refusal: Callable[[str], ApiError]) -> None:
        if self._level == "Ignore" or not (unknown := self._unknown(obj)):
            return
        said = [f'unknown field "{path}"' for path in unknown]
        if self._level == "Strict":
            raise refusal(f"strict decoding error: {', '.join(said)}")
        # A patch is made once more where somebody wrote in between.
        self._caller.warnings.extend(one for one in said if one not in self._caller.warnings)

    def _unknown(self, obj: Json) -> list[str]:
        definition = self._resource.definition
        return sorted(schemas.unknown(obj, definition.schema, top=True)) if definition else []
