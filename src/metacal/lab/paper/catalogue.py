"""Every table and figure of the paper, and some of our own; ``metacal run NAME`` makes them.

To add one, add an `Exhibit` here and its title to ``assets/exhibits.csv``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from metacal.lab.paper.exhibits import Column, Exhibit, Row

DATASETS = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "SVHN": "svhn"}
CIFAR = ("CIFAR-10", "CIFAR-100")
MODELS = {
    "ResNet18": "resnet18",
    "ResNet50": "resnet50",
    "ResNet110": "resnet110",
    "WideResNet26-10": "wideresnet-26-10",
}


def _images(*models: str, datasets: tuple[str, ...] = CIFAR) -> tuple[Row, ...]:
    pairs = ((dataset, model) for dataset in datasets for model in models)
    return tuple(Row(d, m, {"dataset": DATASETS[d], "model": MODELS[m]}) for d, m in pairs)


def _methods(labelled: Mapping[str, str], **settings: Any) -> tuple[Column, ...]:
    return tuple(Column(label, {"method": name, **settings}) for label, name in labelled.items())


NEWSGROUPS = Row("20 Newsgroups", "Global Pooling CNN", {"dataset": "20newsgroups"})
MAIN_ROWS = (*_images(*MODELS), *_images("ResNet18", datasets=("SVHN",)), NEWSGROUPS)
# One table uses a shorter name for a model.
SHORT_NAMED_ROWS = tuple(replace(row, model=row.model.removesuffix("26-10")) for row in MAIN_ROWS)
IMAGE_ROWS = _images("ResNet18", datasets=tuple(DATASETS))
OWN_ROWS = (*IMAGE_ROWS, NEWSGROUPS)
RESNET18_ROWS, SMALLER_RESNET_ROWS = _images("ResNet18"), _images("ResNet18", "ResNet50")
CROSS_DOMAIN_ROWS = tuple(
    Row(f"{dataset}-C", label, {"dataset": DATASETS[dataset], "model": "resnet18", "domains": "cifar-c"}, over)
    for dataset in CIFAR
    for label, over in (("Average", "average"), ("Worst case", "worst"))
)

CE, LS, FL3, FLSD = _methods({"CE": "ce", "LS": "ls", "FL-3": "fl3", "FLSD-53": "flsd53"})
BRIER, MMCE = _methods({"Brier": "brier", "MMCE": "mmce"})
LEARNED = {"MC": "mc", "MC-S": "mc-s", "MC-V": "mc-v", "MC-L2": "mc-l2"}
MC, MC_S, MC_V, MC_L2 = _methods(LEARNED, outer="paper")
MAIN_COLUMNS = (CE, BRIER, MMCE, FL3, FLSD, LS, MC)
CROSS_DOMAIN_COLUMNS = (CE, LS, BRIER, MMCE, replace(FL3, label="FL"), replace(FLSD, label="FLSD"), MC)
ABLATION_COLUMNS = (
    *_methods({"M0: Vanilla CE [meta-loss -, loss CE]": "ce"}),
    *_methods({"M1: Multi-task [meta-loss -, loss CE + DECE]": "ce+dece"}),
    *_methods(
        {
            "M2: Meta-Calibration [meta-loss CE, loss CE]": "mc-ce",
            "M3: Meta-Calibration [meta-loss MMCE, loss CE]": "mc-mmce",
            "M4: Meta-Calibration [meta-loss DECE, loss CE]": "mc-dece",
            "M5: Meta-Calibration [meta-loss CE + DECE, loss CE]": "mc",
        },
        outer="paper",
    ),
)
REGULARISED = ("CE+SBECE", "CE+SAvUC", "FL3+SBECE", "FL3+SAvUC")
SOFT_CALIBRATION_COLUMNS = (
    *_methods({label: label.lower() for label in REGULARISED}),
    *_methods({"MC-SBECE": "mc-sbece", "MC-SAvUC": "mc-savuc"}, outer="paper"),
    MC,
)
INTERLEAVED_COLUMNS = (*_methods({label: label.lower().replace("+", "-interleaved-") for label in REGULARISED}), MC)
GUO = {"method": "ce", "batch_size": 64, "epochs": 500, "milestones": [250, 375], "nesterov": True}
SEARCHES = {"grid-search TS": "grid", "optim. TS (50 iters)": "lbfgs-50", "optim. TS (10 iters)": "lbfgs-10"}
GUO_COLUMNS = (
    *(Column(f"{who} model", None) for who in ("Guo2017 standard", "Guo2017 stochastic depth", "Mukhoti2020 standard")),
    *(
        Column(f"{decay}, {search}", {**GUO, "weight_decay": value}, calibrated)
        for decay, value in (("No weight decay", 0.0), ("With weight decay", 1e-3))
        for search, calibrated in SEARCHES.items()
    ),
    Column("Our cross-entropy", CE.settings, "grid"),
    Column("Our Meta-Calibration", MC.settings, "grid"),
)
# Without the labels of the meta set: trained on the same samples as Meta-Calibration.
CE_EQUAL, LS_EQUAL = _methods({"CE, equal data": "ce", "LS, equal data": "ls"}, hold_out_meta=True)
MC_FIRST, MC_S_FIRST = _methods({"MC, default": "mc", "MC-S, default": "mc-s"}, outer="first")
MC_STEADY, MC_S_STEADY = _methods({"MC, steady": "mc", "MC-S, steady": "mc-s"}, outer="steady")
SWITCHES = {
    "leak": ["leak"],
    "statistics": ["statistics"],
    "replay": ["replay"],
    "all": ["leak", "statistics", "replay"],
    "leak frozen": ["leak", "frozen"],
}
"""Differences of the published code from the paper's algorithm."""
PUBLISHED_CODE_COLUMNS = (
    *(CE, MC),
    *(Column(f"MC, {label}", {**(MC.settings or {}), "published": names}) for label, names in SWITCHES.items()),
)
BASELINES = {
    **{"CE": "ce", "LS": "ls", "FLSD-53": "flsd53", "Dual focal": "dual_focal", "AdaFocal": "adafocal"},
    **{"MbLS": "mbls", "ACLS": "acls", "MDCA": "fl3+mdca", "LogitNorm": "logit_norm", "Mixup": "mixup"},
}
BASELINE_COLUMNS = (  # all select the epoch as our method does, and learn on the validation samples
    *_methods(BASELINES, select="refinement"),
    *(_methods({f"CE, {kind.upper()}": "ce"}, select="refinement", average=kind)[0] for kind in ("ema", "swa")),
    *_methods({"gamma-Net": "gamma-net", "MC": "mc"}, select="refinement", meta="val"),
    *_methods({"Ours": "meta"}),
)

ECE, ERROR, AFTER_TEMPERATURE = "ece_percent", "error_percent", "ece_after_temperature_percent"
CLASSWISE = "classwise_ece_percent"
SIDE_BY_SIDE = (ECE, AFTER_TEMPERATURE, CLASSWISE, "confidence_minus_accuracy_percent", ERROR)
"""Size and direction of the calibration error, and the accuracy."""
PROTOCOL: dict[str, Any] = {
    "metrics": (
        *(ERROR, "nll", "nll_after_temperature"),
        *(
            f"{figure}{when}_percent"
            for figure in ("ece", "classwise_ece", "smooth_ece", "aurc", "coverage_at_1_risk")
            for when in ("", "_after_temperature")
        ),
    ),
    "baseline": "CE",
    "calibrated": "likelihood",
}
"""Protocol of our own comparisons: every figure before and after temperature scaling, paired with CE by seed."""
SIZES = (20, 30, 50, 100, 200, 500, 2000)
"""Our choice: the paper does not give its sizes."""


def _by_name(*exhibits: Exhibit) -> dict[str, Exhibit]:
    return {exhibit.name: exhibit for exhibit in exhibits}


TABLES = _by_name(
    Exhibit("main-ece", MAIN_ROWS, MAIN_COLUMNS, metrics=(ECE,), ranked=True),
    Exhibit("main-ece-temperature", MAIN_ROWS, MAIN_COLUMNS, metrics=(AFTER_TEMPERATURE,), ranked=True),
    Exhibit("main-error", MAIN_ROWS, MAIN_COLUMNS, metrics=(ERROR,), ranked=True),
    Exhibit("main-classwise-ece", SHORT_NAMED_ROWS, MAIN_COLUMNS, metrics=(CLASSWISE,), ranked=True),
    Exhibit("hyperparameters", RESNET18_ROWS, (CE, MC, MC_S, MC_V, MC_L2), metrics=(ECE, ERROR)),
    Exhibit("ablation", RESNET18_ROWS, ABLATION_COLUMNS, metrics=(ECE, ERROR)),
    Exhibit("training-times", MAIN_ROWS, (CE, MC), metrics=("training_hours",)),
    Exhibit("cross-domain-ece", CROSS_DOMAIN_ROWS, CROSS_DOMAIN_COLUMNS, metrics=(ECE,)),
    Exhibit("cross-domain-error", CROSS_DOMAIN_ROWS, CROSS_DOMAIN_COLUMNS, metrics=(ERROR,)),
    Exhibit("soft-calibration-ece", SMALLER_RESNET_ROWS, SOFT_CALIBRATION_COLUMNS, metrics=(ECE,)),
    Exhibit("soft-calibration-error", SMALLER_RESNET_ROWS, SOFT_CALIBRATION_COLUMNS, metrics=(ERROR,)),
    Exhibit("interleaved-ece", SMALLER_RESNET_ROWS, INTERLEAVED_COLUMNS, metrics=(ECE,)),
    Exhibit("interleaved-error", SMALLER_RESNET_ROWS, INTERLEAVED_COLUMNS, metrics=(ERROR,)),
    Exhibit("guo-setups", _images("ResNet110"), GUO_COLUMNS, metrics=(ECE, AFTER_TEMPERATURE, ERROR)),
    Exhibit("image-methods", IMAGE_ROWS, (CE, LS, FL3, BRIER, MC, MC_S, MC_V, MC_L2), metrics=SIDE_BY_SIDE),
    Exhibit("equal-data", OWN_ROWS, (CE, CE_EQUAL, LS, LS_EQUAL, MC), **PROTOCOL),
    Exhibit(
        "outer-step", OWN_ROWS, (CE, LS, MC, MC_FIRST, MC_STEADY, MC_S, MC_S_FIRST, MC_S_STEADY), metrics=SIDE_BY_SIDE
    ),
    Exhibit("published-code", (IMAGE_ROWS[0], NEWSGROUPS), PUBLISHED_CODE_COLUMNS, **PROTOCOL),
    Exhibit("baselines", IMAGE_ROWS, BASELINE_COLUMNS, **PROTOCOL),
)
FIGURES = _by_name(
    Exhibit("generalisation-gap", RESNET18_ROWS[:1], (CE,), drawing="gap"),
    Exhibit("dece-agreement", RESNET18_ROWS, (CE,), drawing="agreement", options={"spearman": True}),
    Exhibit("smoothing-over-training", RESNET18_ROWS, (MC,), drawing="strengths"),
    Exhibit("smoothing-by-class", RESNET18_ROWS[:1], (MC,), drawing="class-smoothing"),
    Exhibit("superclass-smoothing", RESNET18_ROWS[1:], (MC,), drawing="superclasses"),
    Exhibit("l2-histograms", RESNET18_ROWS, (MC_L2,), drawing="l2"),
    Exhibit("reliability", RESNET18_ROWS, (CE, MC), drawing="reliability"),
    Exhibit("sbece-agreement-warm", RESNET18_ROWS, (CE,), drawing="agreement", options={"sbece_temperature": 0.01}),
    Exhibit("sbece-agreement-cold", RESNET18_ROWS, (CE,), drawing="agreement", options={"sbece_temperature": 0.0001}),
)
"""The paper does not say which method the agreement with ECE is measured on."""
STUDIES = _by_name(
    Exhibit("synthetic", sizes=SIZES, seeds=tuple(range(12))),
    Exhibit("synthetic-boundary", drawing="boundary", sizes=(50,), seeds=(0,)),
    Exhibit("synthetic-sweep", drawing="sweep", sizes=SIZES, seeds=tuple(range(12))),
)
EXHIBITS = {**TABLES, **FIGURES, **STUDIES}
