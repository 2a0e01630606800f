"""`Domains`: what a run is trained on, chosen on and tested on when data comes from several domains."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

Domain = tuple[str, int] | str
"""A corruption of images with its severity, or the name of a domain in the data's own ``domains`` column."""

TESTED = ("impulse_noise", "motion_blur", "fog", "elastic_transform")
TESTED_AT_WORST = ("spatter", "jpeg_compression")
WRITTEN = re.compile(r"([a-z_]+):([0-9]+)")


class Domains(BaseModel):
    """Domains by part of a run; corruptions of images, or names in a column of the user's data, not both.

    Attributes:
        train: sampled from, one per step; a meta batch is of another one than the training batch.
        val: what the checkpoint and a temperature are chosen on; None is ``train``.
        test: what is measured, each on its own.

    Examples:
        >>> Domains(train=["A", "B", "C", "D"], test=["E"]).is_column
        True
        >>> Domains(train=["fog:1", "snow:2"], test=[["frost", 5]]).test
        (('frost', 5),)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    train: tuple[Domain, ...]
    val: tuple[Domain, ...] | None = None
    test: tuple[Domain, ...]

    @field_validator("train", "val", "test", mode="before")
    @classmethod
    def _as_domains(cls, value: Any) -> Any:
        if isinstance(value, str | int):
            value = [value]
        return [_domain(each) for each in value] if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _fit_together(self) -> "Domains":
        every = [*self.train, *(self.val or ()), *self.test]
        if len({isinstance(each, str) for each in every}) > 1:
            raise ValueError("domains must be corruptions or names in the data's column, not both")
        for part in ("train", "val", "test"):
            listed = getattr(self, part)
            if listed is None:
                continue
            if not listed:
                raise ValueError(f"domains.{part} must name at least one domain")
            if len(set(listed)) < len(listed):
                raise ValueError(f"domains.{part} must name a domain once")
        if corruptions := self.corruptions(every):
            from metacal.lab.data.corruptions import check_severity, find_corruption  # loads torch

            for name, severity in corruptions:
                find_corruption(name)
                check_severity(severity)
        if self.is_column and set(self.train) & set(self.test):
            raise ValueError("domains.test must not be trained on: samples of one domain cannot be in both")
        if self.is_column and self.val is not None:
            raise ValueError("domains.val must be left out for domains in a column: a share of the training data is it")
        return self

    @property
    def is_column(self) -> bool:
        """Whether they are names in a column of the data."""
        return isinstance(self.train[0], str)

    @staticmethod
    def corruptions(domains: Any) -> list[tuple[str, int]]:
        """Those of these domains that are corruptions."""
        return [domain for domain in domains if not isinstance(domain, str)]


def _domain(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        name, _, severity = value.rpartition(":")
        is_corruption = WRITTEN.fullmatch(value) or (severity.isdecimal() and _is_corruption(name))
        return (_plain_name(name), int(severity)) if is_corruption else value
    if isinstance(value, list | tuple) and value and isinstance(value[0], str):
        return (_plain_name(value[0]), *value[1:])
    return tuple(value) if isinstance(value, list) else value


def _plain_name(corruption: str) -> str:
    """A corruption's name as the files are called: ``JPEG-compression`` is ``jpeg_compression``."""
    return corruption.lower().replace("-", "_").replace(" ", "_")


def _is_corruption(name: str) -> bool:
    from metacal.lab.data.corruptions import CORRUPTIONS

    return _plain_name(name) in CORRUPTIONS


@lru_cache(maxsize=1)
def cifar_c() -> Domains:
    """The paper's domains: 22 of the 95 corruptions with severities are tested on, the others trained on."""
    from metacal.lab.data.corruptions import CORRUPTIONS, SEVERITIES

    every = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
    test = [
        (name, severity)
        for name, severity in every
        if name in TESTED or (name in TESTED_AT_WORST and severity == SEVERITIES[-1])
    ]
    return Domains(train=tuple(each for each in every if each not in test), test=tuple(test))


NAMED: dict[str, Callable[[], Domains]] = {"cifar-c": cifar_c}
