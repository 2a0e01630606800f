"""Formulas of docstrings as pictures, drawn when the documentation is built: no script, no network for the reader.

A griffe extension: ``:math:`x``` and ``.. math:: x`` become images with the formula's source as their text.
"""

import base64
import html
import io
import re

import griffe
from matplotlib import rc_context
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import math_to_image

INLINE = re.compile(r":math:`([^`]+)`", re.S)
BLOCK = re.compile(r"^[ \t]*\.\. math:: (.+)$", re.M)
POINTS = 12.0


class RenderMath(griffe.Extension):
    """Replaces the formulas in every docstring that is shown."""

    def on_object(self, *, obj, **_):
        if obj.docstring is not None:
            text = INLINE.sub(lambda match: picture(match[1]), obj.docstring.value)
            obj.docstring.value = BLOCK.sub(lambda match: picture(match[1], is_block=True), text)


def picture(source, is_block=False):
    """An ``<img>`` of a formula, sized in em and set on the baseline."""
    file = io.BytesIO()
    with rc_context({"mathtext.fontset": "stix", "svg.fonttype": "path", "svg.hashsalt": "metacal"}):
        depth = math_to_image(f"${simpler(source)}$", file, prop=FontProperties(size=POINTS), format="svg")
    drawing = re.sub(rb"<metadata>.*?</metadata>", b"", file.getvalue(), flags=re.S)
    height = float(re.search(rb'height="([\d.]+)pt"', drawing)[1]) / POINTS
    place = "" if is_block else f";vertical-align:{-depth / POINTS:.2f}em"
    data = base64.b64encode(drawing).decode()
    return (
        f'<img class="math{" block" if is_block else ""}" alt="{html.escape(" ".join(source.split()))}" '
        f'style="height:{height:.2f}em{place}" src="data:image/svg+xml;base64,{data}">'
    )


def simpler(source):
    """TeX that matplotlib can read: braces around arguments, one kind of fraction, bars without sizes."""
    text = " ".join(source.split())
    text = re.sub(r"\\[td]?frac\s*(\w)\s*(\w)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\[td]?frac\s*(\w)\s*\{", r"\\frac{\1}{", text)
    text = re.sub(r"\\(mathcal|hat|bar)\s*(\\?\w+)", r"\\\1{\2}", text)
    return re.sub(r"\\Big\s*\|", "|", text)
