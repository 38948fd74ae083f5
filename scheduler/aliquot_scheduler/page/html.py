"""HTML that can't be broken out of: whatever is not `Html` is escaped, and `tag` makes `Html`.

Names, annotations and messages come from whoever may create a pod. None of them gets into a page but through here.
"""

from __future__ import annotations

from html import escape
from urllib.parse import quote

Attribute = str | int | float | bool | None
# Elements without an end, in HTML and in SVG.
_VOID = frozenset({"meta", "link", "input"})
_CLOSED = frozenset({"rect"})


class Html(str):
    """Markup that is safe as it stands."""

    __slots__ = ()


NOTHING = Html("")


def text(value: object) -> Html:
    """Anything, as text."""
    return value if isinstance(value, Html) else Html(escape(str(value), quote=True))


def join(*parts: object) -> Html:
    """One after another."""
    return Html("".join(map(text, parts)))


def tag(name: str, /, *children: object, **attributes: Attribute) -> Html:
    """Make an element: `class_` is `class`, `data_key` is `data-key`; None and False leave an attribute out."""
    opened = open_tag(name, **attributes)
    if name in _VOID:
        return opened
    if name in _CLOSED:
        return Html(f"{opened[:-1]}/>")
    return Html(f"{opened}{''.join(map(text, children))}</{name}>")


def open_tag(name: str, /, **attributes: Attribute) -> Html:
    """The element's beginning alone."""
    return Html(f"<{name}{''.join(map(_attribute, attributes.items()))}>")


def _attribute(item: tuple[str, Attribute]) -> str:
    name, value = item
    if value is None or value is False:
        return ""
    written = name.rstrip("_").replace("_", "-")
    return f" {written}" if value is True else f' {written}="{escape(str(value), quote=True)}"'


def path(*parts: str) -> str:
    """An address of the page's own; each part is one step, whatever characters are in it."""
    return "/".join(["/page", *(quote(part, safe="") for part in parts)])


def link(label: object, *parts: str, **attributes: Attribute) -> Html:
    """A link to another view."""
    return tag("a", label, href=path(*parts), **attributes)
