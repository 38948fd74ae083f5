"""Curves as a picture that needs nothing but a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from math import ceil, floor, log10

import msgspec

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 150, 40, 50
_COLOURS = ("#0b6e4f", "#c1440e", "#3a5fcd", "#8a6d00", "#7a3e9d", "#555555")
_STROKE = 1.6
# Lines across, at most one more.
_TICKS = 6

Curve = Mapping[float, float]


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """Curves on the same axes; `stepped` where a value holds until the next one."""

    curves: Mapping[str, Curve]
    title: str
    across: str
    up: str
    stepped: bool = False


def svg(curves: Mapping[str, Curve], *, title: str, across: str, up: str, stepped: bool = False) -> str:
    """One picture of these curves."""
    return sheet([Panel(curves=curves, title=title, across=across, up=up, stepped=stepped)])


def sheet(panels: Sequence[Panel]) -> str:
    """One picture of several panels, one below the other."""
    height = _HEIGHT * len(panels)
    box = f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        parts += [f'<g transform="translate(0 {_HEIGHT * number})">', *_drawn(panel), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _drawn(panel: Panel) -> list[str]:
    points = [point for curve in panel.curves.values() for point in curve.items()] or [(0.0, 0.0)]
    frame = _Frame([x for x, _ in points], [y for _, y in points])
    parts = [
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(panel.title)}</text>',
        *frame.axes(across=panel.across, up=panel.up),
    ]
    for number, (name, curve) in enumerate(panel.curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        line = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in _corners(curve, stepped=panel.stepped))
        dashes = "" if number < len(_COLOURS) else ' stroke-dasharray="5 3"'
        # Steps of several often lie on each other: what is below is seen at both sides.
        wider = 1.5 * (len(panel.curves) - 1 - number) if panel.stepped else 0.0
        width = f"{_STROKE + wider:.1f}"
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>')
        place = _TOP + 14 + 18 * number
        parts.append(f'<text x="{_WIDTH - _RIGHT + 14}" y="{place}" fill="{colour}">{escape(name)}</text>')
    return parts


def _corners(curve: Curve, *, stepped: bool) -> list[tuple[float, float]]:
    points = sorted(curve.items())
    held = [((later, y), (later, now)) for (_, y), (later, now) in pairwise(points)]
    return [*points[:1], *(corner for both in held for corner in both)] if stepped else points


def _ticks(values: Sequence[float]) -> list[float]:
    """Round numbers from zero, or from below it, to the largest."""
    low, high = min(0.0, *values), max(0.0, *values)
    rough = (high - low or 1.0) / (_TICKS - 1)
    power = 10.0 ** floor(log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if rough <= size * power * (1 + 1e-9))
    return [number * step for number in range(floor(low / step), max(1, ceil(high / step - 1e-9)) + 1)]


class _Frame:
    """Where a point lies in the picture."""

    def __init__(self, across: Sequence[float], up: Sequence[float]) -> None:
        self._x_ticks, self._y_ticks = _ticks(across), _ticks(up)
        self._x = self._x_ticks[0], self._x_ticks[-1]
        self._y = self._y_ticks[0], self._y_ticks[-1]

    def x(self, value: float) -> float:
        """From the left."""
        return _LEFT + (value - self._x[0]) / (self._x[1] - self._x[0]) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """From the top."""
        return _HEIGHT - _BOTTOM - (value - self._y[0]) / (self._y[1] - self._y[0]) * (_HEIGHT - _TOP - _BOTTOM)

    def axes(self, *, across: str, up: str) -> list[str]:
        """Lines, numbers, and what they are of."""
        parts = []
        for x in self._x_ticks:
            parts.append(_line(self.x(x), _TOP, self.x(x), _HEIGHT - _BOTTOM))
            parts.append(f'<text x="{self.x(x):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{x:.4g}</text>')
        for y in self._y_ticks:
            parts.append(_line(_LEFT, self.y(y), _WIDTH - _RIGHT, self.y(y)))
            parts.append(f'<text x="{_LEFT - 8}" y="{self.y(y) + 4:.1f}" text-anchor="end">{y:.4g}</text>')
        parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 12}">{escape(across)}</text>')
        parts.append(f'<text x="{_LEFT}" y="{_TOP - 7}" fill="#555">{escape(up)}</text>')
        return parts


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'
