"""Lightning: a callback that meta-calibrates an unchanged LightningModule, and one that monitors calibration."""

from metacal.errors import needs

with needs("lightning"):
    from metacal.integrations.lightning.callbacks import CalibrationMonitor, MetaCalibration

__all__ = ["CalibrationMonitor", "MetaCalibration"]
