"""Terminal output: every command prints through this `Console`, which makes control characters visible."""

import re
from collections.abc import Iterable

from rich import console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and line feed, other breaks of lines and turns of direction, halves of characters."""


def visible(text: str) -> str:
    r"""Replace control characters, so that a name in a file cannot move the cursor, hide a line or change colours.

    Examples:
        >>> visible("cat\x1b[2J\u202e"), visible("Tür\t1\n")
        ('cat␛[2J\ufffd', 'Tür\t1\n')
    """
    return UNSAFE.sub(lambda match: _picture(ord(match[0])), text)


def one_line(text: str) -> str:
    r"""Return text on one line: line feeds are made visible too.

    Examples:
        >>> one_line("cat\nECE 0.00")
        'cat␊ECE 0.00'
    """
    return visible(text).replace("\n", "\u240a")


def _picture(code: int) -> str:
    """Return the Unicode picture of a control character, or a replacement character."""
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def warn(text: str) -> None:
    """Print one line to standard error."""
    Console(stderr=True).say(f"warning: {text}", "yellow")


class Console(console.Console):
    """Rich's console for untrusted text."""

    def say(self, text: str, style: str | None = None) -> None:
        """Print text literally, without markup or wrapping."""
        self.print(one_line(text), style=style, highlight=False, markup=False, soft_wrap=True)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return segments of text and style; segments that move the cursor are kept."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)
