"""Work spread over threads."""

import pytest
import torch

from metacal.evaluation.threads import in_threads


def test_results_come_in_order_and_torch_has_its_threads_again():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert in_threads(lambda number: (number, torch.get_num_threads()), range(5)) == [(n, 1) for n in range(5)]
        with pytest.raises(ZeroDivisionError):
            in_threads(lambda number: 1 // number, range(2))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
