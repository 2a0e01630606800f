"""Which of several processes this one is, before any of them has been joined to the others."""

import os


def is_first_process() -> bool:
    """Whether this is the process that the others were, or will be, started beside."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0
