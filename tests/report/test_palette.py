"""The colours of page and figures stay apart for those who see red and green alike."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from sample_results import INFO

from ntk_deq.plots.style import BOUND, INK, MEASURED, SERIES
from ntk_deq.report.html import report_html

# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
VISIONS = {
    "usual": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
LEAST = 15.0
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def lab(colour: str, vision: str) -> np.ndarray:
    """CIE L*a*b* of a colour as it is seen."""
    encoded = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(VISIONS[vision] @ linear, 0, 1) / WHITE
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def closest(colours: dict[str, str], vision: str) -> tuple[float, str, str]:
    """The two colours that differ least, and by what Delta E (CIE 1976)."""
    return min(
        (float(np.linalg.norm(lab(a, vision) - lab(b, vision))), one, other)
        for (one, a), (other, b) in combinations(colours.items(), 2)
    )


def page_colours(*, dark: bool) -> dict[str, str]:
    """The colours of the page's variables in one of its two looks."""
    found = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root \{([^}]*)\}", report_html([], INFO))
    ]
    return found[0] | (found[1] if dark else {})


def test_the_measure_is_the_known_one():
    assert np.linalg.norm(lab("#ffffff", "usual") - lab("#000000", "usual")) == pytest.approx(100, abs=0.01)
    assert lab("#ff0000", "usual") == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    # What the page once had: "true" and "unsure" were one colour in deuteranopia.
    assert closest({"true": "#4f9a76", "unsure": "#8f8a82"}, "deuteranopia")[0] == pytest.approx(4.4, abs=0.05)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("dark", [False, True])
def test_outcomes_and_curves_of_the_page_stay_apart(vision, dark):
    colours = page_colours(dark=dark)
    outcomes = {name: colours[f"plot-{name}"] for name in ("true", "tight", "unsure", "false")}
    assert closest(outcomes | {"card": colours["card"]}, vision)[0] >= LEAST
    curves = {name: colours[f"plot-{name}"] for name in ("loss", "bound")}
    assert closest(curves | {"card": colours["card"]}, vision)[0] >= LEAST


@pytest.mark.parametrize("vision", VISIONS)
def test_the_curves_of_a_figure_stay_apart(vision):
    series = {f"series {number}": colour for number, (colour, _) in enumerate(SERIES)}
    assert closest(series | {"bound": BOUND, "ink": INK, "white": "#ffffff"}, vision)[0] >= LEAST
    assert SERIES[0][0] == MEASURED
    assert len({str(dashes) for _, dashes in SERIES}) == len(SERIES) - 1  # the two solid lines differ in lightness
    assert abs(lab(SERIES[0][0], vision)[0] - lab(SERIES[4][0], vision)[0]) > 30
