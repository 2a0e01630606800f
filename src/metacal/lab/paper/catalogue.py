"""Every table and figure of the paper, and some of our own: ``metacal run NAME`` makes one.

A new one is a value here, and a line in ``assets/exhibits.csv`` that says what it is called.
"""

from dataclasses import replace
from typing import Any

from metacal.lab.paper.exhibits import Column, Exhibit, Row

DATASETS = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "SVHN": "svhn"}
MODELS = {
    "ResNet18": "resnet18",
    "ResNet50": "resnet50",
    "ResNet110": "resnet110",
    "WideResNet26-10": "wideresnet-26-10",
}


def image_row(dataset: str, model: str) -> Row:
    """A row of image runs."""
    return Row(dataset, model, {"dataset": DATASETS[dataset], "model": MODELS[model]})


def method(label: str, name: str) -> Column:
    """A column of one method, with the published outer step where something is learned."""
    return Column(label, {"method": name, "outer": "paper"} if name.startswith("mc") else {"method": name})


def without_meta(column: Column) -> Column:
    """The same method without the labels of the meta set: it trains on what Meta-Calibration trains on."""
    return Column(f"{column.label}, equal data", {**(column.settings or {}), "hold_out_meta": True})


def with_each_outer_step(name: str) -> tuple[Column, Column, Column]:
    """A method with each outer step: the published one, and the two of the first edition."""
    label = name.upper()
    default = Column(f"{label}, default", {"method": name, "outer": "first"})
    return method(label, name), default, Column(f"{label}, steady", {"method": name, "outer": "steady"})


def published_code(label: str, *switches: str) -> Column:
    """Meta-Calibration with some of what the published code does beside the paper's algorithm."""
    return Column(f"MC, {label}", {"method": "mc", "outer": "paper", "published": list(switches)})


def by_refinement(label: str, name: str, **settings: Any) -> Column:
    """A method whose epoch is chosen by validation NLL after a temperature, whatever its own recipe says."""
    return Column(label, {"method": name, "select": "refinement", **settings})


CIFAR = ("CIFAR-10", "CIFAR-100")
NEWSGROUPS = Row("20 Newsgroups", "Global Pooling CNN", {"dataset": "20newsgroups"})
MAIN_ROWS = (*(image_row(d, m) for d in CIFAR for m in MODELS), image_row("SVHN", "ResNet18"), NEWSGROUPS)
# One table calls a model by a shorter name.
SHORT_NAMED_ROWS = tuple(replace(row, model=row.model.removesuffix("26-10")) for row in MAIN_ROWS)
IMAGE_ROWS = tuple(image_row(dataset, "ResNet18") for dataset in DATASETS)
OWN_ROWS = (*IMAGE_ROWS, NEWSGROUPS)
PUBLISHED_CODE_ROWS = (IMAGE_ROWS[0], NEWSGROUPS)
RESNET18_ROWS, RESNET110_ROWS = (tuple(image_row(d, model) for d in CIFAR) for model in ("ResNet18", "ResNet110"))
SMALLER_RESNET_ROWS = tuple(image_row(dataset, model) for dataset in CIFAR for model in ("ResNet18", "ResNet50"))
CROSS_DOMAIN_ROWS = tuple(
    Row(f"{dataset}-C", label, {"dataset": DATASETS[dataset], "model": "resnet18", "domains": "cifar-c"}, over)
    for dataset in CIFAR
    for label, over in (("Average", "average"), ("Worst case", "worst"))
)

CE, LS, MC = method("CE", "ce"), method("LS", "ls"), method("MC", "mc")
BRIER, MMCE, FL3 = method("Brier", "brier"), method("MMCE", "mmce"), method("FL-3", "fl3")
MC_S, MC_V, MC_L2 = method("MC-S", "mc-s"), method("MC-V", "mc-v"), method("MC-L2", "mc-l2")
MAIN_COLUMNS = (CE, BRIER, MMCE, FL3, method("FLSD-53", "flsd53"), LS, MC)
EQUAL_DATA_COLUMNS = (CE, without_meta(CE), LS, without_meta(LS), MC)
OUTER_STEP_COLUMNS = (CE, LS, *with_each_outer_step("mc"), *with_each_outer_step("mc-s"))
PUBLISHED_CODE_COLUMNS = (
    *(CE, MC),
    *(published_code(switch, switch) for switch in ("leak", "statistics", "replay")),
    published_code("all", "leak", "statistics", "replay"),
    published_code("leak frozen", "leak", "frozen"),
)
BASELINE_COLUMNS = (
    *(by_refinement(label, name) for label, name in (("CE", "ce"), ("LS", "ls"), ("FLSD-53", "flsd53"))),
    *(by_refinement(label, name) for label, name in (("Dual focal", "dual_focal"), ("AdaFocal", "adafocal"))),
    *(by_refinement(label, name) for label, name in (("MbLS", "mbls"), ("ACLS", "acls"), ("MDCA", "fl3+mdca"))),
    *(by_refinement(label, name) for label, name in (("LogitNorm", "logit_norm"), ("Mixup", "mixup"))),
    *(by_refinement(f"CE, {kind.upper()}", "ce", average=kind) for kind in ("ema", "swa")),
    *(by_refinement(label, name, meta="val") for label, name in (("gamma-Net", "gamma-net"), ("MC", "mc"))),
    Column("Ours", {"method": "meta"}),
)
"""At equal labels: what is learned is learned on the validation samples."""
CROSS_DOMAIN_COLUMNS = (CE, LS, BRIER, MMCE, method("FL", "fl3"), method("FLSD", "flsd53"), MC)
ABLATION_COLUMNS = (
    method("M0: Vanilla CE [meta-loss -, loss CE]", "ce"),
    method("M1: Multi-task [meta-loss -, loss CE + DECE]", "ce+dece"),
    method("M2: Meta-Calibration [meta-loss CE, loss CE]", "mc-ce"),
    method("M3: Meta-Calibration [meta-loss MMCE, loss CE]", "mc-mmce"),
    method("M4: Meta-Calibration [meta-loss DECE, loss CE]", "mc-dece"),
    method("M5: Meta-Calibration [meta-loss CE + DECE, loss CE]", "mc"),
)
REGULARISED = ("CE+SBECE", "CE+SAvUC", "FL3+SBECE", "FL3+SAvUC")
SOFT_CALIBRATION_COLUMNS = (*(method(x, x.lower()) for x in (*REGULARISED, "MC-SBECE", "MC-SAvUC")), MC)
INTERLEAVED_COLUMNS = (*(method(x, x.lower().replace("+", "-interleaved-")) for x in REGULARISED), MC)
GUO = {"method": "ce", "batch_size": 64, "epochs": 500, "milestones": [250, 375], "nesterov": True}
GUO_COLUMNS = (
    *(Column(f"{who} model", None) for who in ("Guo2017 standard", "Guo2017 stochastic depth", "Mukhoti2020 standard")),
    *(
        Column(f"{decay}, {search}", {**GUO, "weight_decay": value}, calibrated)
        for decay, value in (("No weight decay", 0.0), ("With weight decay", 1e-3))
        for search, calibrated in (
            ("grid-search TS", "grid"),
            ("optim. TS (50 iters)", "lbfgs-50"),
            ("optim. TS (10 iters)", "lbfgs-10"),
        )
    ),
    Column("Our cross-entropy", {"method": "ce"}, "grid"),
    Column("Our Meta-Calibration", {"method": "mc", "outer": "paper"}, "grid"),
)
SIDE_BY_SIDE = (
    "ece_percent",
    "ece_after_temperature_percent",
    "classwise_ece_percent",
    "confidence_minus_accuracy_percent",
    "error_percent",
)
"""What tables of our own show: how far a method is off, which way, and what it costs."""


ECE, ERROR, AFTER_TEMPERATURE = "ece_percent", "error_percent", "ece_after_temperature_percent"

TABLES: dict[str, Exhibit] = {
    table.name: table
    for table in (
        Exhibit("main-ece", MAIN_ROWS, MAIN_COLUMNS, metrics=(ECE,), ranked=True),
        Exhibit("main-ece-temperature", MAIN_ROWS, MAIN_COLUMNS, metrics=(AFTER_TEMPERATURE,), ranked=True),
        Exhibit("main-error", MAIN_ROWS, MAIN_COLUMNS, metrics=(ERROR,), ranked=True),
        Exhibit("main-classwise-ece", SHORT_NAMED_ROWS, MAIN_COLUMNS, metrics=("classwise_ece_percent",), ranked=True),
        Exhibit("hyperparameters", RESNET18_ROWS, (CE, MC, MC_S, MC_V, MC_L2), metrics=(ECE, ERROR)),
        Exhibit("ablation", RESNET18_ROWS, ABLATION_COLUMNS, metrics=(ECE, ERROR)),
        Exhibit("training-times", MAIN_ROWS, (CE, MC), metrics=("training_hours",)),
        Exhibit("cross-domain-ece", CROSS_DOMAIN_ROWS, CROSS_DOMAIN_COLUMNS, metrics=(ECE,)),
        Exhibit("cross-domain-error", CROSS_DOMAIN_ROWS, CROSS_DOMAIN_COLUMNS, metrics=(ERROR,)),
        Exhibit("soft-calibration-ece", SMALLER_RESNET_ROWS, SOFT_CALIBRATION_COLUMNS, metrics=(ECE,)),
        Exhibit("soft-calibration-error", SMALLER_RESNET_ROWS, SOFT_CALIBRATION_COLUMNS, metrics=(ERROR,)),
        Exhibit("interleaved-ece", SMALLER_RESNET_ROWS, INTERLEAVED_COLUMNS, metrics=(ECE,)),
        Exhibit("interleaved-error", SMALLER_RESNET_ROWS, INTERLEAVED_COLUMNS, metrics=(ERROR,)),
        Exhibit("guo-setups", RESNET110_ROWS, GUO_COLUMNS, metrics=(ECE, AFTER_TEMPERATURE, ERROR)),
        Exhibit("image-methods", IMAGE_ROWS, (CE, LS, FL3, BRIER, MC, MC_S, MC_V, MC_L2), metrics=SIDE_BY_SIDE),
        Exhibit("equal-data", OWN_ROWS, EQUAL_DATA_COLUMNS, metrics=(ECE, AFTER_TEMPERATURE, ERROR)),
        Exhibit("outer-step", OWN_ROWS, OUTER_STEP_COLUMNS, metrics=SIDE_BY_SIDE),
        Exhibit("published-code", PUBLISHED_CODE_ROWS, PUBLISHED_CODE_COLUMNS, metrics=SIDE_BY_SIDE),
        Exhibit("baselines", IMAGE_ROWS, BASELINE_COLUMNS, metrics=SIDE_BY_SIDE),
    )
}
FIGURES: dict[str, Exhibit] = {
    figure.name: figure
    for figure in (
        Exhibit("generalisation-gap", RESNET18_ROWS[:1], (CE,), drawing="gap"),
        Exhibit("dece-agreement", RESNET18_ROWS, (CE,), drawing="agreement", options={"spearman": True}),
        Exhibit("smoothing-over-training", RESNET18_ROWS, (MC,), drawing="strengths"),
        Exhibit("smoothing-by-class", RESNET18_ROWS[:1], (MC,), drawing="class-smoothing"),
        Exhibit("superclass-smoothing", RESNET18_ROWS[1:], (MC,), drawing="superclasses"),
        Exhibit("l2-histograms", RESNET18_ROWS, (MC_L2,), drawing="l2"),
        Exhibit("reliability", RESNET18_ROWS, (CE, MC), drawing="reliability"),
        Exhibit("sbece-agreement-warm", RESNET18_ROWS, (CE,), drawing="agreement", options={"sbece_temperature": 0.01}),
        Exhibit(
            "sbece-agreement-cold", RESNET18_ROWS, (CE,), drawing="agreement", options={"sbece_temperature": 0.0001}
        ),
    )
}
"""For the agreement with ECE the paper does not say what is trained."""
SIZES = (20, 30, 50, 100, 200, 500, 2000)
"""The paper gives none."""
STUDIES: dict[str, Exhibit] = {
    study.name: study
    for study in (
        Exhibit("synthetic", sizes=SIZES, seeds=tuple(range(12))),
        Exhibit("synthetic-boundary", drawing="boundary", sizes=(50,), seeds=(0,)),
        Exhibit("synthetic-sweep", drawing="sweep", sizes=SIZES, seeds=tuple(range(12))),
    )
}
EXHIBITS: dict[str, Exhibit] = {**TABLES, **FIGURES, **STUDIES}
