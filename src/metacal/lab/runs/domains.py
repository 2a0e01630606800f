"""`Domains`: what a run is trained on, chosen on and tested on when data comes from several domains."""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

Domain = tuple[str, int] | str
"""A corruption of images with its severity, or the name of a domain in the data's own ``domains`` column."""

SEVERITIES = (1, 2, 3, 4, 5)
CIFAR_C = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    *("snow", "frost", "fog", "brightness", "spatter"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate"),
)
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
        for name, severity in self.corruptions(every):
            if severity not in SEVERITIES:
                raise ValueError(f"severity must be an integer from 1 to 5, got {severity} for {name}")
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
        is_corruption = _plain_name(name) in CIFAR_C and severity.isdecimal()
        return (_plain_name(name), int(severity)) if is_corruption or WRITTEN.fullmatch(value) else value
    if isinstance(value, list | tuple) and value and isinstance(value[0], str):
        return (_plain_name(value[0]), *value[1:])
    return tuple(value) if isinstance(value, list) else value


def _plain_name(corruption: str) -> str:
    """A corruption's name as the files are called: ``JPEG-compression`` is ``jpeg_compression``."""
    return corruption.lower().replace("-", "_").replace(" ", "_")


ALL_95 = tuple((name, severity) for name in CIFAR_C for severity in SEVERITIES)
TEST_22 = tuple(
    (name, severity)
    for name, severity in ALL_95
    if name in TESTED or (name in TESTED_AT_WORST and severity == SEVERITIES[-1])
)
NAMED: dict[str, Domains] = {
    # The 22 are tested on, the other 73 trained and validated on, as in the paper.
    "cifar-c": Domains(train=tuple(domain for domain in ALL_95 if domain not in TEST_22), test=TEST_22),
}
