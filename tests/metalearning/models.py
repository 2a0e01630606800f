"""Small models and batches for the tests of the calibrator."""

import torch
from torch import nn

K = 3


class Net(nn.Module):
    """Normalisation, dropout and a linear head."""

    def __init__(self, outputs=K, norm=True, dropout=0.3):
        super().__init__()
        layers = [nn.Linear(5, 8), nn.BatchNorm1d(8) if norm else nn.Identity(), nn.ReLU(), nn.Dropout(dropout)]
        self.backbone = nn.Sequential(*layers)
        self.fc = nn.Linear(8, outputs)

    def forward(self, x):
        return self.fc(self.backbone(x))


def make_net(seed=0, **options):
    torch.manual_seed(seed)
    return Net(**options)


def batch(n, seed, classes=K, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 5, generator=generator, dtype=dtype), torch.randint(classes, (n,), generator=generator)


def batches(count, n=12, seed=100, **options):
    return [batch(n, seed + i, **options) for i in range(count)]
