"""The figures of the paper and its study on simulated data: ``metacal run NAME`` makes one, from runs of the tables."""

from dataclasses import replace

from metacal.lab.paper.exhibits import NOT_IN_THE_PAPER, PaperFigure, SimulatedStudy
from metacal.lab.paper.tables import CE, MC, MC_L2, RESNET18_ROWS, image_row

DECE_AGREEMENT = PaperFigure(
    name="dece-agreement",
    number="2",
    label="ece-dece-analysis",
    title="DECE against ECE over training",
    claim="Their correlation is close to 1 and their means are close to each other.",
    cost="6 runs, shared with the main tables",
    drawing="agreement",
    rows=RESNET18_ROWS,
    columns=(CE,),  # the paper does not say what is trained
    options={"spearman": True},
)
SYNTHETIC = SimulatedStudy(
    name="synthetic",
    number="7",
    label="synthetic",
    title="Accuracy and calibration on simulated data with a known oracle",
    claim="Meta-Calibration matches both the accuracy and the ECE of the oracle.",
    cost="84 draws, minutes on any machine",
    drawing="table",
    sizes=(20, 30, 50, 100, 200, 500, 2000),  # the paper gives none
    seeds=tuple(range(12)),
)

FIGURES: dict[str, PaperFigure] = {
    figure.name: figure
    for figure in (
        PaperFigure(
            name="generalisation-gap",
            number="1",
            label="ece-error-behaviour",
            title="Error and ECE over training with cross-entropy",
            claim="Training ECE and error fall to 0, but validation ECE rises: calibration overfits.",
            cost="3 runs, shared with the main tables",
            drawing="gap",
            rows=(image_row("CIFAR-10", "ResNet18"),),
            columns=(CE,),
        ),
        DECE_AGREEMENT,
        PaperFigure(
            name="smoothing-over-training",
            number="3",
            label="label-analysis",
            title="Learned smoothing over training",
            claim="The learned smoothing is not trivial and adapts to the learning-rate schedule.",
            cost="6 runs, shared with the main tables",
            drawing="strengths",
            rows=RESNET18_ROWS,
            columns=(MC,),
        ),
        PaperFigure(
            name="smoothing-by-class",
            number="4",
            label="dist-smoothing-analysis",
            title="Learned smoothing by class",
            claim="Classes that look alike receive more smoothing, such as cat and dog, automobile and truck.",
            cost="3 runs, shared with the main tables",
            drawing="class-smoothing",
            rows=(image_row("CIFAR-10", "ResNet18"),),
            columns=(MC,),
        ),
        PaperFigure(
            name="superclass-smoothing",
            number="5",
            label="superclass-smoothing",
            title="Smoothing within and across superclasses",
            claim="Smoothing within a superclass is generally much stronger than across superclasses.",
            cost="3 runs, shared with the main tables",
            drawing="superclasses",
            rows=(image_row("CIFAR-100", "ResNet18"),),
            columns=(MC,),
        ),
        PaperFigure(
            name="l2-histograms",
            number="7",
            label="l2-analysis",
            title="Learned unit-wise L2 coefficients",
            claim="The coefficients vary widely and take both positive and negative values.",
            cost="6 runs, shared with hyperparameters",
            drawing="l2",
            rows=RESNET18_ROWS,
            columns=(MC_L2,),
        ),
        PaperFigure(
            name="reliability",
            number="8",
            label="cifar100ece",
            title="Reliability with and without Meta-Calibration",
            claim="Learned smoothing brings accuracy and confidence together, and softens the confidences.",
            cost="12 runs, shared with the main tables",
            drawing="reliability",
            rows=RESNET18_ROWS,
            columns=(CE, MC),
        ),
        *(
            replace(
                DECE_AGREEMENT,
                name=f"sbece-agreement-{name}",
                number=number,
                label=label,
                title=f"DECE and SB-ECE (T = {temperature:g}) against ECE over training",
                claim="DECE approximates ECE better than SB-ECE, whatever the temperature.",
                options={"sbece_temperature": temperature},
            )
            for name, number, label, temperature in (
                ("warm", "9", "sbece_analysis", 0.01),
                ("cold", "10", "sbece_analysis2", 0.0001),
            )
        ),
    )
}
STUDIES: dict[str, SimulatedStudy] = {
    study.name: study
    for study in (
        SYNTHETIC,
        replace(
            SYNTHETIC,
            name="synthetic-boundary",
            number="6",
            title="Estimated probabilities and decision boundary on simulated data",
            claim=(
                "Meta-Calibration is calibrated much like the oracle; "
                "cross-entropy and label smoothing visibly are not."
            ),
            cost="1 draw, seconds on any machine",
            drawing="boundary",
            sizes=(50,),
            seeds=(0,),
        ),
        replace(
            SYNTHETIC,
            name="synthetic-sweep",
            number="",
            label="",
            title="ECE on simulated data by the number of labels",
            claim=NOT_IN_THE_PAPER,
            cost="84 draws, those of synthetic",
            drawing="sweep",
        ),
    )
}
