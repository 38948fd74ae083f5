"""Settings: flags beat the environment, that beats the TOML file, that beats the default; each knows its source.

A component's settings are one frozen struct, named by a section: field `node_name` of section `agent` is the flag
`--node-name`, the variable `ALIQUOT_AGENT_NODE_NAME` and the entry `node_name` of the file's `[agent]`. Unknown
entries are errors, since a misspelt setting that is silently ignored is found out at the worst time.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from aliquot_core.errors import ClusterError

PREFIX = "ALIQUOT_"
_OF_A_SERVICE = re.compile(r"_(SERVICE_HOST|SERVICE_PORT|PORT)(_|$)")

T = TypeVar("T", bound=msgspec.Struct)


class SettingsError(ClusterError):
    """A setting that can't be used."""


class Resolved(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A component's settings, and where each value came from."""

    section: str
    value: T
    sources: dict[str, str]


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that settings may come from, gathered once at start."""

    flags: Mapping[str, Any] = {}
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
                values[name] = _from_text(self.environment[variable], kind=field.type, where=variable)
                sources[name] = f"environment {variable}"
            if self.flags.get(name) is not None:
                flag = f"--{name.replace('_', '-')}"
                values[name] = _checked(self.flags[name], kind=field.type, where=flag)
                sources[name] = f"flag {flag}"
        return Resolved(section=section, value=_built(values, kind=kind, sources=sources), sources=sources)

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

    def _table(self, section: str, *, known: Mapping[str, Any]) -> Mapping[str, Any]:
        table = self.file.get(section, {})
        where = f"{self.file_name} [{section}]"
        if not isinstance(table, dict):
            raise SettingsError("is not a table", where=where, remedy=f"write [{section}] on a line of its own")
        for name in table:
            if name not in known:
                raise SettingsError(f"unknown entry {name!r}", where=where, remedy=_closest(name, known=known))
        for name, value in table.items():
            _checked(value, kind=known[name].type, where=f"{where} {name}")
        return table


def read_toml(text: str, *, name: str) -> dict[str, Any]:
    """Parse a settings file, naming the file in errors."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"is not TOML: {error}", where=name, remedy="mend the line, or remove the file") from None


def _from_text(text: str, *, kind: Any, where: str) -> Any:
    """Variables are text: numbers and yes/no are read from it, lists are written with commas."""
    value: Any = [part.strip() for part in text.split(",") if part.strip()] if _is_list(kind) else text
    return _checked(value, kind=kind, where=f"environment {where}")


def _is_list(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) in {list, tuple}


def _checked(value: Any, *, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{value!r} will not do: {error}", where=where, remedy="see `aliquot config`") from None


def _built(values: dict[str, Any], *, kind: type[T], sources: Mapping[str, str]) -> T:
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        used = ", ".join(sorted({source for source in sources.values() if source != "default"})) or "defaults"
        raise SettingsError(str(error), where=used, remedy="see `aliquot config`") from None


def _closest(name: str, *, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
