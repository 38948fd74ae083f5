"""Markup: whatever is put in stays text."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from aliquot_scheduler.page.html import Html, join, link, path, tag

# The parser, as browsers do, makes something else of these, whatever is written.
TEXTS = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]))


class Read(HTMLParser):
    """What a browser would see."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Text comes."""
        self.text += data


@given(text=TEXTS, value=TEXTS)
def test_whatever_is_written_stays_text(text: str, value: str) -> None:
    """One element comes out, with the very text and the very attribute that were put in."""
    read = Read(tag("p", text, data_tip=value, title=value))
    assert read.tags == [("p", {"data-tip": value, "title": value})]
    assert read.text == text


@given(steps=st.lists(TEXTS.filter(bool), min_size=1, max_size=4))
def test_every_name_has_an_address_of_its_own(steps: list[str]) -> None:
    """Names come back out of an address as they went in, and never lead out of the page's own."""
    (_, attributes), *_ = Read(link("x", *steps)).tags
    address = attributes["href"]
    assert address is not None
    assert address.startswith("/page/")
    assert [unquote(step) for step in address.removeprefix("/page/").split("/")] == steps


def test_only_markup_is_not_escaped() -> None:
    """Elements within elements stay elements, strings that look like them do not become any."""
    assert join("<b>", tag("i", "x")) == Html("&lt;b&gt;<i>x</i>")


def test_attributes_that_are_not_there_are_left_out() -> None:
    """None and False leave one out, True needs no value, and names are as HTML has them."""
    assert tag("input", class_=None, required=True, disabled=False, aria_label="a") == '<input required aria-label="a">'
    assert tag("rect", width=1) == '<rect width="1"/>'
    assert path("a/b", "c") == "/page/a%2Fb/c"
