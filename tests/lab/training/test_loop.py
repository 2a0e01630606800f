"""An epoch's figures and the validation error: the same for one logit a sample and a pair of them, in every dtype."""

import pytest
import torch

from metacal.lab.training.checkpoints import Progress
from metacal.lab.training.loop import error_rate

SINGLE = torch.tensor([-2.0, -0.0, 0.0, 0.5, 3.0, 1e-3])
TARGETS = torch.tensor([0, 1, 0, 0, 1, 1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_one_logit_is_the_pair_of_zero_and_it(dtype):
    single = SINGLE.to(dtype)
    layouts = single, single.unsqueeze(1), torch.stack((torch.zeros_like(single), single), dim=1)
    seen = []
    for logits in layouts:
        progress = Progress()
        progress.add(torch.tensor(1.0), logits, TARGETS)
        seen.append(progress.seen())
        wrong = ((single > 0).long() != TARGETS).double().mean().item()  # a logit of 0 says class 0
        assert error_rate(logits, TARGETS) == wrong
        wide = single.float() if dtype != torch.float64 else single
        assert seen[-1][1].dtype == wide.dtype
        assert seen[-1][2].double().mean() == pytest.approx(1.0 - wrong)
    for other in seen[1:]:
        assert all(torch.equal(one, two) for one, two in zip(seen[0], other))
