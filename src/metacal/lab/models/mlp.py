"""Networks on plain feature vectors: a multi-layer perceptron, and logistic regression."""

from collections.abc import Sequence

from torch import Tensor, nn


class MLP(nn.Module):
    """Linear layers of these ``hidden`` widths with ReLU between them; inputs of any shape are flattened.

    Examples:
        >>> import torch
        >>> model = MLP(64, 10, hidden=(32,))
        >>> tuple(model(torch.zeros(5, 1, 8, 8)).shape), model.head.in_features
        ((5, 10), 32)
    """

    def __init__(
        self, in_features: int, num_classes: int, hidden: Sequence[int] = (256, 256), dropout: float = 0.0
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        for width in hidden:
            layers += [nn.Linear(in_features, width), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
            in_features = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(in_features, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(n, K)``."""
        logits: Tensor = self.head(self.body(x))
        return logits


class LogisticRegression(MLP):
    """One linear layer from d features to K logits."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__(in_features, num_classes, hidden=())
