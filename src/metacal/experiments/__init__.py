"""Every table and figure of the paper, as data: one file each. They say what is run; nothing here runs it."""

from metacal.experiments import (
    ablation,
    cross_domain_ece,
    cross_domain_error,
    guo_setups,
    hyperparameters,
    interleaved_ece,
    interleaved_error,
    main_classwise_ece,
    main_ece,
    main_ece_temperature,
    main_error,
    soft_calibration_ece,
    soft_calibration_error,
    training_times,
)
from metacal.runs.paper import PaperTable

TABLES: dict[str, PaperTable] = {
    page.TABLE.name: page.TABLE
    for page in (
        main_ece,
        main_ece_temperature,
        main_error,
        main_classwise_ece,
        hyperparameters,
        ablation,
        training_times,
        cross_domain_ece,
        cross_domain_error,
        soft_calibration_ece,
        soft_calibration_error,
        interleaved_ece,
        interleaved_error,
        guo_setups,
    )
}
GROUPS: dict[str, tuple[PaperTable, ...]] = {
    "cross-domain": (cross_domain_ece.TABLE, cross_domain_error.TABLE),
}
"""Tables that are made together, from the same runs."""

__all__ = ["GROUPS", "TABLES"]
