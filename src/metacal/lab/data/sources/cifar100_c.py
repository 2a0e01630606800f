"""CIFAR-100-C: the same arrays as CIFAR-10-C for the images of CIFAR-100."""

from pathlib import Path

from metacal.lab.data.dataset import Dataset
from metacal.lab.data.sources import cifar_c


def find(folder: Path) -> tuple[Path, ...]:
    """The folder or archive of the arrays."""
    return cifar_c.find(folder, "cifar100")


def load(folder: Path, *, corruption: str = "gaussian_noise", severity: int = 1) -> Dataset:
    """CIFAR-100 with its test images as one corruption shows them."""
    return cifar_c.load(folder, "cifar100", corruption=corruption, severity=severity)


def check(folder: Path) -> None:
    """Read every array to its end."""
    cifar_c.check(folder, "cifar100")
