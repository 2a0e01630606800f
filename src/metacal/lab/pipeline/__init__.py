"""The one place that turns the names in a spec into objects: data -> model -> train -> evaluate, straight down.

`run_spec` is the way through; each of the others turns one part of a spec into objects.
"""

from metacal.lab.pipeline.data import evaluation_batches, load_data
from metacal.lab.pipeline.machine import make_fabric
from metacal.lab.pipeline.model import build_model
from metacal.lab.pipeline.run_spec import run

__all__ = ["build_model", "evaluation_batches", "load_data", "make_fabric", "run"]
