"""Settings: flags beat the environment, that beats the TOML file, that beats the default; each knows its source.

A component's settings are one frozen struct, named by a section: field `node_name` of section `agent` is the flag
`--node-name`, the variable `ALIQUOT_AGENT_NODE_NAME` and the entry `node_name` of the file's `[agent]`. Unknown
entries are errors, since a misspelt setting that is silently ignored is found out at the worst time. So is a value that
could not work: what a type can't say, a function says that stands beside the type (`of_kind`). Everybody who resolves
a section refuses the same, `aliquot config` and the process itself. How several values go together, a section's struct
says as it is made, by the same error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args, get_origin

import msgspec

from aliquot_core.errors import AliquotError, ClusterError, UserError

PREFIX = "ALIQUOT_"
_OBJECTS = re.compile(r"\s*\[\s*\{")
_OF_A_SERVICE = re.compile(r"_(SERVICE_HOST|SERVICE_PORT|PORT)(_|$)")

# A unix socket's address has room for so many bytes.
LONGEST_SOCKET = 107
# Nothing of ours is done more often than every millisecond or less often than once a day.
SHORTEST, LONGEST = 0.001, 86_400.0
_CHECK = "check"
_LONGEST_QUOTED = 80
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}

T = TypeVar("T", bound=msgspec.Struct)


class SettingsError(ClusterError):
    """A setting that can't be used."""


class FlagError(UserError):
    """A value on the command line that can't be used: whoever typed it mends it, not whoever runs the cluster."""


class UnusableValueError(ClusterError):
    """Why a value is not of its kind; whoever read it knows where it stood."""


def of_kind(check: Callable[[Any], None]) -> msgspec.Meta:
    """Have a setting of this type checked by a function too, which raises an `AliquotError` with a remedy."""
    return msgspec.Meta(extra={_CHECK: check})


def _check_path(path: str) -> None:
    if not path or "\0" in path:
        raise UnusableValueError("it is no path", remedy="write the path of a file or folder")


def _check_mounted(path: str) -> None:
    _check_path(path)
    if not path.startswith("/"):
        raise UnusableValueError(
            "containers mount from there, by its path on the node", remedy="write the whole path, from / on"
        )


def _check_socket(path: str) -> None:
    _check_path(path)
    if (length := len(path.encode())) > LONGEST_SOCKET:
        raise UnusableValueError(
            f"{length} bytes are too many for a socket's path", remedy=f"write one of {LONGEST_SOCKET} bytes at most"
        )


Seconds = Annotated[float, msgspec.Meta(ge=SHORTEST, le=LONGEST)]
FilePath = Annotated[str, of_kind(_check_path)]
# One that containers mount, or mount from.
MountedPath = Annotated[str, of_kind(_check_mounted)]
SocketPath = Annotated[str, of_kind(_check_socket)]


class Resolved(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A component's settings, and where each value came from."""

    section: str
    value: T
    sources: dict[str, str]


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that settings may come from, gathered once at start."""

    # By section: two of them may have a setting of one name, and a flag is for one.
    flags: Mapping[str, Mapping[str, Any]] = {}
    # Flags that people know by another name than their setting's.
    spelt: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    file: Mapping[str, Any] = {}
    file_name: str = ""

    def resolve(self, section: str, kind: type[T]) -> Resolved[T]:
        """One component's settings, checked."""
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        values: dict[str, Any] = {}
        sources = dict.fromkeys(fields, "default")
        for name, value in self._table(section, known=fields).items():
            values[name], sources[name] = value, f"{self.file_name} [{section}] {name}"
        for name, field in fields.items():
            variable = f"{PREFIX}{section}_{name}".upper()
            if variable in self.environment:
                values[name] = _from_text(self.environment[variable], field=field, where=variable)
                sources[name] = f"environment {variable}"
            given = self.flags.get(section, {}).get(name)
            if given is not None:
                flag = self.spelt.get(name, f"--{name.replace('_', '-')}")
                values[name] = _checked(given, field=field, where=flag, refusal=FlagError)
                sources[name] = f"flag {flag}"
        # Each value was checked by itself, where its place is known; what is left is how they go together.
        try:
            value = msgspec.convert(values, kind, strict=False)
        except UnusableValueError as error:
            raise SettingsError(error.what, where=f"settings of [{section}]", remedy=error.remedy) from None
        return Resolved(section=section, value=value, sources=sources)

    def check_names(self, sections: Mapping[str, type[msgspec.Struct]]) -> None:
        """Refuse a section of the file that no component has, and a misspelt variable of one that does.

        Other variables may begin like ours: a container reads its slice in `ALIQUOT_GPUS`, and Kubernetes tells every
        pod of the Services beside it (`ALIQUOT_AGENT_SERVICE_HOST`).
        """
        for name in self.file:
            if name not in sections:
                raise SettingsError(
                    f"unknown section [{name}]", where=self.file_name, remedy=_closest(name, known=sections)
                )
        known = {
            f"{PREFIX}{section}_{field.name}".upper()
            for section, kind in sections.items()
            for field in msgspec.structs.fields(kind)
        }
        ours = tuple(f"{PREFIX}{section}_".upper() for section in sections)
        for variable in self.environment:
            if variable.startswith(ours) and variable not in known and not _OF_A_SERVICE.search(variable):
                raise SettingsError(
                    f"unknown variable {variable}", where="environment", remedy=_closest(variable, known=known)
                )

    def check_values(self, sections: Mapping[str, type[msgspec.Struct]]) -> None:
        """Refuse a value that a component could not use, whoever that is."""
        for section, kind in sections.items():
            self.resolve(section, kind)

    def _table(self, section: str, *, known: Mapping[str, Any]) -> Mapping[str, Any]:
        table = self.file.get(section, {})
        where = f"{self.file_name} [{section}]"
        if not isinstance(table, dict):
            raise SettingsError("is not a table", where=where, remedy=f"write [{section}] on a line of its own")
        for name in table:
            if name not in known:
                raise SettingsError(f"unknown entry {name!r}", where=where, remedy=_closest(name, known=known))
        for name, value in table.items():
            _checked(value, field=known[name], where=f"{where} {name}")
        return table


def read_toml(text: str, *, name: str) -> dict[str, Any]:
    """Parse a settings file, naming the file in errors."""
    import tomllib  # noqa: PLC0415 - most commands of a person have no file, and wait 2 ms for it

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # too long a number and too deep a list have no error of TOML's own
        raise SettingsError(f"is not TOML: {error}", where=name, remedy="mend the line, or remove the file") from None


def _from_text(text: str, *, field: msgspec.structs.FieldInfo, where: str) -> Any:
    """Variables are text: numbers and yes/no are read from it; lists have commas, and those of objects are JSON."""
    listed = get_origin(_plain(field.type)) in {list, tuple}
    value: Any = text
    if listed and _OBJECTS.match(text):
        with suppress(msgspec.DecodeError):
            value = msgspec.json.decode(text)
    elif listed:
        value = [part.strip() for part in text.split(",") if part.strip()]
    return _checked(value, field=field, where=f"environment {where}")


def _checked(
    value: Any,
    *,
    field: msgspec.structs.FieldInfo,
    where: str,
    refusal: type[FlagError | SettingsError] = SettingsError,
) -> Any:
    without = f"or drop it{'' if field.default in {'', None} else f': the default is {_written(field.default)}'}"
    try:
        read = msgspec.convert(value, field.type, strict=False)
        for check in _checks(field.type):
            check(read)
    except msgspec.ValidationError as error:
        known = [repr(choice) for choice in get_args(field.type)] if get_origin(field.type) is Literal else []
        wrong, remedy = _in_words(str(error)), f"write {' or '.join(known) or 'what is expected'}, {without}"
    except AliquotError as error:
        wrong, remedy = error.what, f"{error.remedy}, {without}"
    else:
        return read
    raise refusal(f"{repr(value)[:_LONGEST_QUOTED]} will not do: {wrong}", where=where, remedy=remedy)


def _written(default: Any) -> str:
    """As somebody would write it into the file."""
    match default:
        case bool():
            return str(default).lower()
        case float():
            return f"{default:g}"
        case tuple():
            return ", ".join(map(str, default)) or "nothing"
        case _:
            return repr(default)


def _in_words(wrong: str) -> str:
    """What a type expects, without the words of the language in which it is written."""
    found = re.sub(r"`([^`]*)`", lambda types: _types_in_words(types[1]), wrong)
    return found[:1].lower() + found[1:]


def _types_in_words(types: str) -> str:
    """A value that may be left out is called so by nobody who has written one."""
    return " or ".join(_TYPES.get(one, one) for one in types.split(" | ") if one != "null")


def _plain(kind: Any) -> Any:
    """The type itself, without what `Annotated` says beside it."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _checks(kind: Any) -> list[Callable[[Any], None]]:
    metas = [meta for meta in get_args(kind)[1:] if isinstance(meta, msgspec.Meta)]
    return [meta.extra[_CHECK] for meta in metas if meta.extra and _CHECK in meta.extra]


def _closest(name: str, *, known: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415 - only whoever has mistyped something needs it

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
