"""How many samples of each class a stratified part gets."""

import numpy as np
from numpy.typing import NDArray

from metacal.errors import InvalidValueError


def quotas(counts: NDArray[np.int64], size: int, *, keep: int, part: str) -> NDArray[np.int64]:
    """Samples of each class in a part of ``size``: in proportion, at least one, leaving ``keep`` for the later parts.

    Args:
        counts: ``(K,)``, samples of each class; an absent class gets none.
        size: of the part.
        keep: samples of every class that must be left over.
        part: its name, for messages.

    Examples:
        >>> quotas(np.array([6, 3, 1, 0]), 5, keep=0, part="val").tolist()
        [3, 1, 1, 0]
    """
    present = counts > 0
    rarest = int(counts[present].min(initial=size + keep + 1))
    if rarest < keep + 1:
        raise InvalidValueError(
            f"`stratified` must be False here: class {int(np.flatnonzero(counts == rarest)[0])} has {rarest} samples, "
            f"too few for one in each part."
        )
    if size < int(present.sum()):
        raise InvalidValueError(
            f"`stratified` must be False here: {size} samples in {part} are too few for one of each of "
            f"{int(present.sum())} classes."
        )
    exact = counts * (size / counts.sum())
    most = np.where(present, counts - keep, 0)
    found: NDArray[np.int64] = np.clip(np.floor(exact).astype(np.int64), present.astype(np.int64), most)
    while found.sum() != size:  # one sample at a time to (or from) the class that is furthest off
        missing = found.sum() < size
        lack = (
            np.where(found < most, exact - found, -np.inf) if missing else np.where(found > 1, found - exact, -np.inf)
        )
        if not np.isfinite(lack).any():
            raise InvalidValueError(f"`stratified` must be False here: {part} cannot have {size} samples.")
        found[int(lack.argmax())] += 1 if missing else -1
    return found
