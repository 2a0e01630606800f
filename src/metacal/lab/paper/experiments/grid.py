"""The rows, columns and figures that tables of the paper share."""

from metacal.lab.paper.exhibits import Column, Row


def image_row(dataset: str, model: str) -> Row:
    """A row of image runs."""
    return Row(dataset, model, {"dataset": DATASETS[dataset], "model": MODELS[model]})


DATASETS = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "SVHN": "svhn"}
MODELS = {
    "ResNet18": "resnet18",
    "ResNet50": "resnet50",
    "ResNet110": "resnet110",
    "WideResNet26-10": "wideresnet-26-10",
}

CIFAR = ("CIFAR-10", "CIFAR-100")
NEWSGROUPS = Row("20 Newsgroups", "Global Pooling CNN", {"dataset": "20newsgroups"})
MAIN_ROWS = (*(image_row(d, m) for d in CIFAR for m in MODELS), image_row("SVHN", "ResNet18"), NEWSGROUPS)
IMAGE_ROWS = tuple(image_row(dataset, "ResNet18") for dataset in DATASETS)
RESNET18_ROWS = tuple(image_row(dataset, "ResNet18") for dataset in CIFAR)
CROSS_DOMAIN_ROWS = tuple(
    Row(f"{dataset}-C", label, {"dataset": DATASETS[dataset], "model": "resnet18", "domains": "cifar-c"}, over)
    for dataset in CIFAR
    for label, over in (("Average", "average"), ("Worst case", "worst"))
)
SMALLER_RESNET_ROWS = tuple(image_row(dataset, model) for dataset in CIFAR for model in ("ResNet18", "ResNet50"))
SIDE_BY_SIDE = (
    "ece_percent",
    "ece_after_temperature_percent",
    "classwise_ece_percent",
    "confidence_minus_accuracy_percent",
    "error_percent",
)
"""What tables of our own show: how far a method is off, which way, and what it costs."""


def method(label: str, name: str) -> Column:
    """A column of one method, with the published outer step where something is learned."""
    return Column(label, {"method": name, "outer": "paper"} if name.startswith("mc") else {"method": name})


CE, LS, MC = method("CE", "ce"), method("LS", "ls"), method("MC", "mc")
MAIN_COLUMNS = (
    CE,
    method("Brier", "brier"),
    method("MMCE", "mmce"),
    method("FL-3", "fl3"),
    method("FLSD-53", "flsd53"),
    LS,
    MC,
)
CROSS_DOMAIN_COLUMNS = (
    CE,
    LS,
    method("Brier", "brier"),
    method("MMCE", "mmce"),
    method("FL", "fl3"),
    method("FLSD", "flsd53"),
    MC,
)
