"""The document round a view: landmarks, menu, and where scripts and styles are.

Nothing is inline, neither script nor style, so that the policy can forbid both; nothing comes from elsewhere.
"""

from __future__ import annotations

from aliquot_scheduler.page.html import Html, join, path, tag
from aliquot_scheduler.page.views import View

MENU = (
    ("cluster", "Cluster", ()),
    ("applications", "Applications", ("applications",)),
    ("queues", "Queues", ("queues",)),
    ("waiting", "Waiting", ("waiting",)),
    ("history", "History", ("history",)),
)
# Scripts may make elements of text in one place only (page.js): that is what the last two say.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types aliquot"
)


HISTORY = "history.js"


def document(view: View, *, steps: tuple[str, ...], serial: str, version: str) -> str:
    """The whole page; `serial` names what it shows, so that only changes of that need be sent."""
    main = tag(
        "main",
        tag("h1", view.title),
        view.body(),
        id="main",
        tabindex=-1,
        data_view=path(*steps).removeprefix("/page").lstrip("/"),
        data_serial=serial,
    )
    return _whole(view.title, _header(view.section), main, version=version, scripts=("page.js", view.script))


def notice(title: str, *said: object, version: str, again: bool = False) -> str:
    """A page without a view: that one must log in, or that nobody leads."""
    main = tag("main", tag("h1", title), *said, id="main", tabindex=-1)
    return _whole(title, tag("header", tag("p", "Aliquot", class_="brand")), main, version=version, again=again)


def login(why: str, *, version: str) -> str:
    """Asks for a token."""
    field = tag("input", type="password", name="token", id="token", required=True, autocomplete="off")
    form = tag(
        "form",
        tag("p", tag("label", "Token of a Kubernetes account ", field)),
        tag("p", tag("button", "Look", type="submit")),
        method="post",
        action="/page/login",
    )
    hint = tag(
        "p",
        "Whoever may list all pods and nodes may look, for instance with ",
        tag("code", "kubectl create token NAME"),
    )
    return notice("Who are you?", tag("p", why, role="alert") if why else "", form, hint, version=version)


def _header(section: str) -> Html:
    entries = [
        tag("li", tag("a", label, href=path(*steps), aria_current="page" if name == section else None))
        for name, label, steps in MENU
    ]
    return tag(
        "header",
        tag("p", "Aliquot", class_="brand"),
        tag("nav", tag("ul", *entries), aria_label="Views"),
        tag("button", "Theme", type="button", id="theme"),
        tag("p", id="live", role="status", aria_live="polite"),
    )


def _whole(
    title: str, header: Html, main: Html, *, version: str, scripts: tuple[str, ...] = (), again: bool = False
) -> str:
    static = f"/page/static/{version}"
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="refresh", content="3") if again else "",
        tag("title", f"{title} - Aliquot"),
        tag("link", rel="icon", href=f"{static}/icon.svg"),
        tag("link", rel="stylesheet", href=f"{static}/page.css"),
        tag("link", rel="stylesheet", href=f"{static}/uplot/uPlot.min.css") if HISTORY in scripts else "",
        # Before anything is painted, so that a dark page does not flash.
        tag("script", src=f"{static}/theme.js"),
        *(tag("script", type="module", src=f"{static}/{name}") for name in scripts if name),
    )
    skip = tag("a", "Skip to content", href="#main", class_="skip")
    body = tag("body", skip, header, main)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>{body}</html>\n'
