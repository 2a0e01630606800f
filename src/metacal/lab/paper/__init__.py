"""The paper: its tables and figures as values, their published figures, and ours beside them."""

from metacal.lab.paper.exhibits import Exhibit
from metacal.lab.paper.figures import FIGURES, STUDIES
from metacal.lab.paper.tables import TABLES

EXHIBITS: dict[str, Exhibit] = {**TABLES, **FIGURES, **STUDIES}

__all__ = ["EXHIBITS", "FIGURES", "STUDIES", "TABLES"]
