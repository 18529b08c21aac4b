"""Drawings take their colours from the page, keep their ids apart, and are repeatable."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from matplotlib.figure import Figure

from xlm.report.figure_style import PALETTE, colour, figure_style, inline_svg, new_figure, png_bytes, standalone_svg


def drawn() -> Figure:
    with figure_style():
        figure = new_figure(2.0)
        axes = figure.subplots()
        for name in PALETTE:
            axes.plot([0, 1], [0, 1], color=colour(name), marker="o", label=name)
        axes.set_xlabel("steps")
        figure.legend(loc="outside upper left")
        figure.canvas.draw()
    return figure


def rendered(name: str = "a") -> str:
    with figure_style():
        return inline_svg(drawn(), name, 'a "line" & <dots>')


def test_svg_is_well_formed_and_says_what_it_shows() -> None:
    root = ET.fromstring(rendered())
    assert root.attrib["aria-label"] == 'a "line" & <dots>'
    assert root.attrib["role"] == "img"
    assert "width" not in root.attrib
    assert root.attrib["viewBox"].startswith("0 0 360")


def test_every_colour_is_a_variable_of_the_page() -> None:
    svg = rendered()
    assert not re.findall(r"#[0-9a-fA-F]{6}\b", svg)
    assert {f"var(--{name})" for name in PALETTE} <= set(re.findall(r"var\(--\w+\)", svg))
    assert "DejaVu" not in svg
    assert "<style" not in svg


def test_ids_of_two_figures_never_meet() -> None:
    ids = [set(re.findall(r'\bid="([^"]+)"', rendered(name))) for name in ("a", "b")]
    assert ids[0]
    assert not ids[0] & ids[1]
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', rendered("a")))
    assert used <= ids[0]


def test_a_file_of_its_own_follows_light_and_dark() -> None:
    svg = standalone_svg(rendered())
    ET.fromstring(svg.encode("utf-8"))
    assert "prefers-color-scheme: dark" in svg
    assert all(light in svg and dark in svg for light, dark in PALETTE.values())


def test_the_same_drawing_twice_gives_the_same_bytes() -> None:
    assert rendered() == rendered()
    with figure_style():
        first, second = png_bytes(drawn()), png_bytes(drawn())
    assert first == second
    assert first.startswith(b"\x89PNG")


def contrast(first: str, second: str) -> float:
    """WCAG 2.2 contrast ratio of two sRGB colours."""

    def luminance(hexadecimal: str) -> float:
        channels = [int(hexadecimal[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_can_be_read_on_the_page() -> None:
    for name, (light, dark) in PALETTE.items():
        if name != "grid":
            assert contrast(light, "#ffffff") >= 4.5, name
            assert contrast(dark, "#14181c") >= 4.5, name
