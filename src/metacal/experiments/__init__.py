"""Every table and figure of the paper, as data: one file each. They say what is run; nothing here runs it."""

from metacal.experiments import (
    ablation,
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
        soft_calibration_ece,
        soft_calibration_error,
        interleaved_ece,
        interleaved_error,
        guo_setups,
    )
}

__all__ = ["TABLES"]
