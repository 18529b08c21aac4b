"""How figures look, and how one drawing serves a page in light and in dark mode.

Series are drawn in fixed light colours. For the page, every colour of the palette in matplotlib's SVG
is replaced by a CSS variable, so that the page's style sheet decides what it looks like; a file of its
own carries that style sheet with it. PNG files keep the light colours on white.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# name: (light, dark). Blue, green, vermilion, purple after Okabe & Ito (2008), distinguishable by
# readers who are colour-blind; the dark column keeps a contrast of at least 4.5 : 1 on the page.
PALETTE: dict[str, tuple[str, str]] = {
    "ink": ("#1c2126", "#e6e9ec"),
    "muted": ("#6b747d", "#98a2ac"),
    "grid": ("#d9dee3", "#3a424a"),
    "blue": ("#0069a8", "#5ab4ec"),
    "green": ("#007d5c", "#3ecf9f"),
    "red": ("#c8500a", "#f59a5c"),
    "purple": ("#a3518a", "#dd9cc8"),
}
# Colours of objectives; those that are rarely together share one.
OBJECTIVE_HUES: dict[str, str] = {
    "mlm": "red",
    "tlm": "green",
    "contrastive": "blue",
    "clm": "purple",
    "rtd": "purple",
    "nsp": "muted",
    "sop": "muted",
}
WIDTH_INCHES = 5.0
FONT_POINTS = 9.5
SVG_CSS = "font-family: system-ui, sans-serif; stroke-linejoin: round; stroke-linecap: butt;"
_PIXELS_PER_INCH_PNG = 200


def colour(name: str) -> str:
    """Return a palette colour to draw with."""
    return PALETTE[name][0]


def css_variables(column: int) -> str:
    """Return the palette as CSS declarations; column 0 is light, 1 is dark."""
    return " ".join(f"--{name}: {values[column]};" for name, values in PALETTE.items())


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw inside this context: small sans-serif text kept as text, thin axes, repeatable ids."""
    settings: dict[str, Any] = {
        "font.size": FONT_POINTS,
        "font.family": "sans-serif",
        "svg.fonttype": "none",
        "svg.hashsalt": "xlm",
        "axes.edgecolor": colour("grid"),
        "axes.labelcolor": colour("muted"),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": colour("grid"),
        "grid.linewidth": 0.6,
        "text.color": colour("ink"),
        "xtick.color": colour("grid"),
        "ytick.color": colour("grid"),
        "xtick.labelcolor": colour("muted"),
        "ytick.labelcolor": colour("ink"),
        "legend.frameon": False,
        "legend.fontsize": FONT_POINTS - 0.8,
    }
    with matplotlib.rc_context(settings):
        yield


def new_figure(height_inches: float) -> Figure:
    """Return an empty figure of the page's column width."""
    return Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")


def png_bytes(figure: Figure) -> bytes:
    """Render a figure as PNG on white."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png", dpi=_PIXELS_PER_INCH_PNG, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def inline_svg(figure: Figure, name: str, alt: str) -> str:
    """Render a figure as an ``<svg>`` element that takes its colours from the page; ids start with ``name``."""
    buffer = io.StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = buffer.getvalue()
    view_box = re.search(r'viewBox="([^"]*)"', svg)
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    # matplotlib's own style sheet would reach every element of the page.
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", body)
    body = re.sub(r"font-family: [^;\"]*;? ?", "", body)
    for variable, (light, _) in PALETTE.items():
        body = re.sub(re.escape(light), f"var(--{variable})", body, flags=re.IGNORECASE)
    # No width and height: the figure takes the width of its column.
    opening = f'<svg role="img" aria-label="{html.escape(alt)}" viewBox="{view_box.group(1) if view_box else ""}"'
    return f'{opening} xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{body}'


def standalone_svg(inline: str) -> str:
    """Return a figure as a file of its own that follows the reader's light or dark mode."""
    light, dark = css_variables(0), css_variables(1)
    style = f"svg {{ {light} {SVG_CSS} }} @media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}"
    end = inline.index(">") + 1
    return f'<?xml version="1.0" encoding="utf-8"?>\n{inline[:end]}<style>{style}</style>{inline[end:]}'
