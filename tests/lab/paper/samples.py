"""Cells and tables of a test's own."""

from metacal.lab.paper.tables import Cell, TableData


def cell(mean=1.0, published=None, column="CE", **more):
    return Cell("CIFAR-10 ResNet18", column, "ece_percent", () if mean is None else (mean,), 1, None, published, **more)


def table(*cells, **more):
    columns = tuple(each.column for each in cells)
    return TableData("main-ece", "Table 1", "Claim.", "Note.", columns, (cells,), None, **more)
