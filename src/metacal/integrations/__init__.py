"""Meta-calibration for existing trainers; each module is imported only on request.

``metacal.integrations.sklearn``, ``.lightning`` and ``.transformers`` each need that library; ``.loggers`` sends
figures to whatever logger a Lightning or Fabric loop has. ``.torchmetrics`` has the metrics under torchmetrics' names.
"""

from pathlib import Path

CALIBRATION_METRIC = str(Path(__file__).with_name("calibration_metric.py"))
"""What Hugging Face `evaluate` loads: ``evaluate.load(CALIBRATION_METRIC)``."""
