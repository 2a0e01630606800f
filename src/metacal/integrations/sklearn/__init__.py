"""scikit-learn: a meta-calibrated classifier, and post-hoc calibrators around any classifier."""

from metacal.integrations.sklearn.meta_calibrated_classifier import MetaCalibratedClassifier
from metacal.integrations.sklearn.posthoc_calibrated_classifier import PosthocCalibratedClassifier

__all__ = ["MetaCalibratedClassifier", "PosthocCalibratedClassifier"]
