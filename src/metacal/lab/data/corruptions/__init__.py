"""The 19 corruptions of CIFAR-C at 5 severities: whole batches, on their device, seeded by sample, at any size."""

from metacal.lab.data.corruptions.corrupt import check_images, corrupt
from metacal.lab.data.corruptions.registry import CORRUPTIONS, SEVERITIES, Corruption, check_severity, find_corruption

__all__ = ["CORRUPTIONS", "SEVERITIES", "Corruption", "check_images", "check_severity", "corrupt", "find_corruption"]
