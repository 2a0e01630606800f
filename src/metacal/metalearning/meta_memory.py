"""The latest held-out samples as the head saw them, to be looked at again."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, cat


class MetaMemory:
    """Fills a meta batch up with samples of the meta batches before it, at their features of then.

    A calibration error of few samples is mostly noise, and so is its gradient. Only the head is simulated, so a sample
    that was looked at some steps ago can be looked at again without a forward pass: the head is that of now, its input
    a little old. Samples that are not finite are remembered like others: meta steps are skipped until they have left.

    Args:
        samples: a meta batch is filled up to so many; 0 remembers nothing.
    """

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self._kept: tuple[Tensor, Tensor] | None = None

    def filled_up(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """A meta batch, then the latest samples before it, unless they are of another shape or have several labels."""
        kept, room = self._kept, self.samples - len(labels)
        if kept is None or room <= 0 or kept[0].shape[1:] != features.shape[1:]:
            return features, labels
        return cat((features, kept[0][:room].to(features))), cat((labels, kept[1][:room].to(labels)))

    def keep(self, features: Tensor, labels: Tensor) -> None:
        """Remember a meta batch that was filled up."""
        if self.samples and len(features) == len(labels):
            self._kept = features[: self.samples].detach().clone(), labels[: self.samples].clone()

    def state_dict(self) -> dict[str, Tensor]:
        """What is remembered."""
        return {} if self._kept is None else dict(zip(("features", "labels"), self._kept, strict=True))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remember that; nothing, if there is nothing."""
        self._kept = (state["features"], state["labels"]) if state else None
