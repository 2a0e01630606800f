"""Lightning: a callback that meta-calibrates an unchanged LightningModule, and one that watches its calibration."""

from metacal.errors import needs

with needs("lightning"):
    from metacal.integrations.lightning.calibration_monitor import CalibrationMonitor
    from metacal.integrations.lightning.meta_calibration import MetaCalibration

__all__ = ["CalibrationMonitor", "MetaCalibration"]
