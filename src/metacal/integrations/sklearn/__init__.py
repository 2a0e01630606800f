"""scikit-learn: a classifier that is meta-calibrated as it is fitted, and calibrators around any fitted one."""

from metacal.integrations.sklearn.meta_calibrated_classifier import MetaCalibratedClassifier
from metacal.integrations.sklearn.posthoc_calibrated_classifier import PosthocCalibratedClassifier

__all__ = ["MetaCalibratedClassifier", "PosthocCalibratedClassifier"]
