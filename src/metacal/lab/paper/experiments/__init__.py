"""Every table and figure of the paper, as data: one file each. They say what is run; nothing here runs it."""

from metacal.lab.paper.exhibits import Exhibit, PaperFigure, PaperTable, SimulatedStudy
from metacal.lab.paper.experiments import (
    ablation,
    cross_domain_ece,
    cross_domain_error,
    dece_agreement,
    equal_data,
    generalisation_gap,
    guo_setups,
    hyperparameters,
    image_methods,
    interleaved_ece,
    interleaved_error,
    l2_histograms,
    main_classwise_ece,
    main_ece,
    main_ece_temperature,
    main_error,
    outer_step,
    reliability_analysis,
    sbece_agreement_cold,
    sbece_agreement_warm,
    smoothing_by_class,
    smoothing_over_training,
    soft_calibration_ece,
    soft_calibration_error,
    superclass_smoothing,
    synthetic,
    synthetic_boundary,
    synthetic_sweep,
    training_times,
)

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
        image_methods,
        equal_data,
        outer_step,
    )
}
FIGURES: dict[str, PaperFigure] = {
    page.FIGURE.name: page.FIGURE
    for page in (
        generalisation_gap,
        dece_agreement,
        smoothing_over_training,
        smoothing_by_class,
        superclass_smoothing,
        l2_histograms,
        reliability_analysis,
        sbece_agreement_warm,
        sbece_agreement_cold,
    )
}
STUDIES: dict[str, SimulatedStudy] = {
    page.STUDY.name: page.STUDY for page in (synthetic, synthetic_boundary, synthetic_sweep)
}
EXHIBITS: dict[str, Exhibit] = {**TABLES, **FIGURES, **STUDIES}

__all__ = ["EXHIBITS", "FIGURES", "STUDIES", "TABLES"]
