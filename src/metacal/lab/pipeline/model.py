"""The model that a spec names, for the data it is of."""

from torch import nn

from metacal.lab.data import Dataset
from metacal.lab.models import create_model
from metacal.lab.runs import RunSpec


def build_model(spec: RunSpec, dataset: Dataset) -> nn.Module:
    """A new model, with weights from torch's random numbers as they are."""
    return create_model(
        spec.model,
        num_classes=dataset.num_classes,
        input_shape=dataset.input_shape,
        embeddings=dataset.embeddings,
        **spec.model_options,
    )
