"""The tables of the paper, and some of our own: ``metacal run NAME`` makes one. A new table is one more value here."""

from dataclasses import replace

from metacal.lab.paper.exhibits import Column, PaperTable, Row

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


CIFAR = ("CIFAR-10", "CIFAR-100")
NEWSGROUPS = Row("20 Newsgroups", "Global Pooling CNN", {"dataset": "20newsgroups"})
MAIN_ROWS = (*(image_row(d, m) for d in CIFAR for m in MODELS), image_row("SVHN", "ResNet18"), NEWSGROUPS)
IMAGE_ROWS = tuple(image_row(dataset, "ResNet18") for dataset in DATASETS)
RESNET18_ROWS = tuple(image_row(dataset, "ResNet18") for dataset in CIFAR)
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

MAIN_ECE = PaperTable(
    name="main-ece",
    number="1",
    label="main_ece",
    title="Test ECE",
    claim="Meta-Calibration leads to excellent intrinsic calibration.",
    cost="210 runs, shared with the other main tables",
    rows=MAIN_ROWS,
    columns=MAIN_COLUMNS,
    metrics=("ece_percent",),
    ranked=True,
)
CROSS_DOMAIN_ECE = PaperTable(
    name="cross-domain-ece",
    number="9",
    label="cross_domain_ece",
    title="Test ECE across domains (CIFAR-C, 22 domains that are not trained on)",
    claim="Meta-Calibration still helps across domains, but less than on clean data.",
    cost="42 runs, none shared with the main tables",
    rows=CROSS_DOMAIN_ROWS,
    columns=CROSS_DOMAIN_COLUMNS,
    metrics=("ece_percent",),
)
SOFT_CALIBRATION_ECE = PaperTable(
    name="soft-calibration-ece",
    number="11",
    label="sbece_results",
    title="Test ECE of SB-ECE and S-AvUC, as regularisers and as meta-objectives",
    claim="DECE is the better meta-objective, and meta-learning better than regularising.",
    cost="84 runs, 12 of them shared with the main tables",
    rows=SMALLER_RESNET_ROWS,
    columns=SOFT_CALIBRATION_COLUMNS,
    metrics=("ece_percent",),
)
INTERLEAVED_ECE = PaperTable(
    name="interleaved-ece",
    number="13",
    label="interleaved_ece",
    title="Test ECE of interleaved training",
    claim="Interleaved training is generally worse calibrated.",
    cost="60 runs, 12 of them shared with the main tables",
    rows=SMALLER_RESNET_ROWS,
    columns=INTERLEAVED_COLUMNS,
    metrics=("ece_percent",),
)

TABLES: dict[str, PaperTable] = {
    table.name: table
    for table in (
        MAIN_ECE,
        replace(
            MAIN_ECE,
            name="main-ece-temperature",
            number="2",
            label="main_ece_temp",
            title="Test ECE with temperature scaling",
            claim="Meta-Calibration is excellent after temperature scaling too.",
            metrics=("ece_after_temperature_percent",),
        ),
        replace(
            MAIN_ECE,
            name="main-error",
            number="3",
            label="main_error",
            title="Test error",
            claim="Meta-Calibration costs only small increases in the test error.",
            metrics=("error_percent",),
        ),
        replace(
            MAIN_ECE,
            name="main-classwise-ece",
            number="4",
            label="main_cece",
            title="Test classwise ECE",
            claim="The gain holds for a more advanced measure of calibration.",
            # This table calls one model by a shorter name.
            rows=tuple(replace(row, model=row.model.removesuffix("26-10")) for row in MAIN_ROWS),
            metrics=("classwise_ece_percent",),
        ),
        PaperTable(
            name="hyperparameters",
            number="5",
            label="l2comparison",
            title="Which hyper-parameters to learn",
            claim="Other variants of Meta-Calibration also lead to large gains.",
            cost="30 runs, 12 of them shared with the main tables",
            rows=RESNET18_ROWS,
            columns=(CE, MC, MC_S, MC_V, MC_L2),
            metrics=("ece_percent", "error_percent"),
        ),
        PaperTable(
            name="ablation",
            number="6",
            label="ablationCompact",
            title="Ablation of the losses of the inner and the outer objective",
            claim="Both the meta-learning and the joint CE + DECE objective are needed.",
            cost="36 runs, 12 of them shared with the main tables",
            rows=RESNET18_ROWS,
            columns=ABLATION_COLUMNS,
            metrics=("ece_percent", "error_percent"),
        ),
        PaperTable(
            name="training-times",
            number="8",
            label="time",
            title="Training times",
            claim="Meta-Calibration takes 2.2 to 4.6 times as long in the published code.",
            cost="60 runs, all of them shared with the main tables",
            rows=MAIN_ROWS,
            columns=(CE, MC),
            metrics=("training_hours",),
        ),
        CROSS_DOMAIN_ECE,
        replace(
            CROSS_DOMAIN_ECE,
            name="cross-domain-error",
            number="10",
            label="cross_domain_err",
            title="Test error across domains (CIFAR-C, 22 domains that are not trained on)",
            claim="The error of Meta-Calibration is close to that of the others.",
            cost="42 runs, those of cross-domain-ece",
            metrics=("error_percent",),
        ),
        SOFT_CALIBRATION_ECE,
        replace(
            SOFT_CALIBRATION_ECE,
            name="soft-calibration-error",
            number="12",
            label="sbece_results_err",
            title="Test error of SB-ECE and S-AvUC, as regularisers and as meta-objectives",
            claim="The gain in calibration is not paid for in error.",
            cost="84 runs, those of soft-calibration-ece",
            metrics=("error_percent",),
        ),
        INTERLEAVED_ECE,
        replace(
            INTERLEAVED_ECE,
            name="interleaved-error",
            number="14",
            label="interleaved_err",
            title="Test error of interleaved training",
            claim="Interleaved training has a much higher error.",
            cost="60 runs, those of interleaved-ece",
            metrics=("error_percent",),
        ),
        PaperTable(
            name="guo-setups",
            number="15",
            label="guo_comparison",
            title="The setups of Guo et al. (2017)",
            claim="No setup gives the figures that were reported there.",
            cost="24 runs, 12 of them of 500 epochs, the others shared with the main tables; three columns are quoted",
            rows=tuple(image_row(dataset, "ResNet110") for dataset in CIFAR),
            columns=GUO_COLUMNS,
            metrics=("ece_percent", "ece_after_temperature_percent", "error_percent"),
        ),
        PaperTable(
            name="image-methods",
            title="Baselines and everything that is learned, side by side",
            cost="72 runs, most of them shared with the main tables",
            rows=IMAGE_ROWS,
            columns=(CE, LS, FL3, BRIER, MC, MC_S, MC_V, MC_L2),
            metrics=SIDE_BY_SIDE,
        ),
        PaperTable(
            name="equal-data",
            title="Meta-Calibration against baselines that train on the meta set, and on as much as it does",
            cost="60 runs, 36 of them shared with the main tables",
            rows=(*IMAGE_ROWS, NEWSGROUPS),
            columns=(CE, without_meta(CE), LS, without_meta(LS), MC),
            metrics=("ece_percent", "ece_after_temperature_percent", "error_percent"),
        ),
        PaperTable(
            name="outer-step",
            title="The outer step: published, by default, and steady",
            cost="96 runs, 45 of them shared with the other tables",
            rows=(*IMAGE_ROWS, NEWSGROUPS),
            columns=(CE, LS, *with_each_outer_step("mc"), *with_each_outer_step("mc-s")),
            metrics=SIDE_BY_SIDE,
        ),
    )
}
