"""Logits with targets drawn from them, and the ways in which data can be degenerate."""

import torch

SIDES = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(20, 1)
RIGHT = torch.tensor([0, 1]).repeat(20)


def drawn(n=3000, num_classes=4, sharpened=2.0, seed=0, dtype=torch.float64):
    """Logits ``sharpened`` times those that the targets were drawn from."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2.0 * torch.randn(n, num_classes, generator=generator, dtype=torch.float64)
    targets = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    return (logits * sharpened).to(dtype), targets


def noisy(seed=0):
    """Two-class scores that are right three times in four, with some spread."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(400, 2, generator=generator, dtype=torch.float64)
    flip = torch.rand(400, generator=generator) < 0.25
    return logits, torch.where(flip, logits.argmin(1), logits.argmax(1))


DEGENERATE = {
    "separable": (SIDES * 5.0, RIGHT),
    "separable, tiny": (SIDES * 0.01, RIGHT),
    "separable, huge": (SIDES * 1e4, RIGHT),
    "always wrong": (SIDES * 5.0, 1 - RIGHT),
    "one class": (noisy()[0], torch.zeros(400, dtype=torch.int64)),
}
