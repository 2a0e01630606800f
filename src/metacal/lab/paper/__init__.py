"""The paper: its tables and figures as values, their published figures, and ours beside them."""

from metacal.lab.paper.catalogue import EXHIBITS, FIGURES, STUDIES, TABLES

__all__ = ["EXHIBITS", "FIGURES", "STUDIES", "TABLES"]
