"""Numbers of the heat maps of a run under shift: corruptions by severities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FIGURES = ("ece", "ece_after_temperature", "error")
TITLES = {"ece": "ECE", "ece_after_temperature": "ECE with the clean temperature", "error": "Error"}
SHADES = 10


@dataclass(frozen=True)
class HeatMap:
    """One figure over corruptions (rows) and severities (columns); fractions."""

    figure: str
    title: str
    values: list[list[float]]
    shades: list[list[int]]  # the same from 0 to `SHADES`, darkest for the highest value
    clean: float  # on clean test data
    by_severity: list[float]  # mean over corruptions
    average: float
    worst: float
    worst_at: str  # the domain that has it, ``fog:5``


@dataclass(frozen=True)
class Shift:
    """A run under one shift, ``real`` or ``generated``."""

    name: str
    source: str
    samples: int  # test images of each domain
    temperature: float  # fitted on clean validation data
    corruptions: list[str]
    severities: list[int]
    maps: list[HeatMap]
    hurt: int  # domains whose ECE the clean temperature makes worse
    reading: str  # what it says, in a sentence or two


def prepare_shift(study: Mapping[str, Any]) -> Shift:
    """Return the heat maps of the figures of ``metacal shift``."""
    domains = study["domains"]
    corruptions = list(dict.fromkeys(each["corruption"] for each in domains))
    severities = sorted({each["severity"] for each in domains})
    maps = [_heat_map(figure, study, corruptions, severities) for figure in FIGURES]
    hurt = sum(each["ece_after_temperature"] > each["ece"] for each in domains)
    before, after, _ = maps
    reading = (
        f"Temperature scaling fitted on clean validation data (T = {study['temperature']:.2f}) takes ECE from "
        f"{_percent(before.clean)} to {_percent(after.clean)} on clean test data, and from {_percent(before.average)} "
        f"to {_percent(after.average)} on average over {len(domains)} shifted domains; the worst, {after.worst_at}, is "
        f"left at {_percent(after.worst)}. On {hurt} of {len(domains)} domains it makes ECE worse."
    )
    about = (study["shift"], study["source"], int(study["samples"]), float(study["temperature"]))
    return Shift(*about, corruptions, severities, maps, hurt, reading)


def _heat_map(figure: str, study: Mapping[str, Any], corruptions: list[str], severities: list[int]) -> HeatMap:
    found = {(each["corruption"], each["severity"]): float(each[figure]) for each in study["domains"]}
    values = [[found[name, severity] for severity in severities] for name in corruptions]
    # The two calibration errors share their shades: what a temperature fixes shows at once.
    shared = ("error",) if figure == "error" else ("ece", "ece_after_temperature")
    highest = max(float(each[one]) for each in study["domains"] for one in shared)
    worst_at = max(found, key=lambda domain: found[domain])
    return HeatMap(
        figure,
        TITLES[figure],
        values,
        [[round(SHADES * value / highest) if highest else 0 for value in row] for row in values],
        float(study["clean"][figure]),
        [sum(column) / len(values) for column in zip(*values, strict=True)],
        sum(map(sum, values)) / (len(values) * len(severities)),
        found[worst_at],
        f"{worst_at[0]}:{worst_at[1]}",
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f}\u00a0%"
