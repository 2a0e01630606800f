"""Data: from files and datasets to batches."""

from metacal.data.cycle import cycle

__all__ = ["cycle"]
