"""The terminal: every verb prints through this `Console`, which shows control characters instead of obeying them."""

import re
from collections.abc import Iterable

from rich import console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and line feed, what turns the direction of text, and halves of characters."""


def visible(text: str) -> str:
    r"""Text as a terminal may have it: a name in a file cannot move the cursor, hide a line or change colours.

    Examples:
        >>> visible("cat\x1b[2J\u202e"), visible("Tür\t1\n")
        ('cat␛[2J\ufffd', 'Tür\t1\n')
    """
    return UNSAFE.sub(lambda match: _picture(ord(match[0])), text)


def one_line(text: str) -> str:
    r"""Text that is one line whatever the names in it hold: a line feed is shown too.

    Examples:
        >>> one_line("cat\nECE 0.00")
        'cat␊ECE 0.00'
    """
    return visible(text).replace("\n", "\u240a")


def _picture(code: int) -> str:
    """The picture that Unicode has for a control character, or the sign for one that cannot be shown."""
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def warn(text: str) -> None:
    """One line on the terminal's other stream."""
    Console(stderr=True).say(f"warning: {text}", "yellow")


class Console(console.Console):
    """Rich's console, for text from anywhere."""

    def say(self, text: str, style: str | None = None) -> None:
        """Print text as it stands, brackets and all, in one line of any length."""
        self.print(one_line(text), style=style, highlight=False, markup=False, soft_wrap=True)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments of text and style; what moves the cursor is a segment of its own, and stays."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)
