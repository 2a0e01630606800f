"""The tables and figures of the paper as data, with the published figures and ours."""

from metacal.lab.paper.catalogue import EXHIBITS, FIGURES, STUDIES, TABLES

__all__ = ["EXHIBITS", "FIGURES", "STUDIES", "TABLES"]
