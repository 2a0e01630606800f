"""`AveragedWeights`: weights averaged over the steps (EMA) or over the last epochs (SWA) of a run."""

from collections.abc import Iterable

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

SWA_START = 0.75
"""Share of the epochs after which ``swa`` begins (Izmailov et al. 2018)."""


class AveragedWeights:
    """Averaged weights, which are validated and scored instead of the trained model's.

    Args:
        model: the trained model; copied.
        kind: ``"ema"``: a running average, updated after each step; ``"swa"``: the mean over the last quarter of the
            epochs. Before that, the weights are those of the model.
        decay: of the running average, per step.
        epochs: of the run.
    """

    def __init__(self, model: nn.Module, kind: str, *, decay: float, epochs: int) -> None:
        self.trained, self.kind, self.start = model, kind, int(SWA_START * epochs) if kind == "swa" else 0
        average = get_ema_multi_avg_fn(decay) if kind == "ema" else None  # type: ignore[no-untyped-call]
        self.model = AveragedModel(model, multi_avg_fn=average)

    def after_step(self) -> None:
        """Update the average after an optimiser step."""
        if self.kind == "ema":
            self.model.update_parameters(self.trained)

    def begins_after(self, epoch: int) -> bool:
        """Whether averaging over epochs starts after this one, numbered from 0."""
        return 0 < self.start == epoch

    @torch.no_grad()
    def after_epoch(self, epoch: int, batches: Iterable[tuple[Tensor, Tensor]], fabric: Fabric) -> None:
        """Update the average after an epoch, then recompute batch-normalisation statistics on training batches."""
        if self.kind == "swa":
            if epoch <= self.start:
                self.model.n_averaged.zero_()  # the next update copies the weights
            self.model.update_parameters(self.trained)
        dtype = next(self.model.parameters()).dtype
        with fabric.autocast():
            update_bn((x.to(dtype) if x.is_floating_point() else x for x, _ in batches), self.model)
        for module in self.model.modules() if fabric.world_size > 1 else ():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                for buffer in (module.running_mean, module.running_var):
                    if buffer is not None:
                        buffer.copy_(fabric.all_reduce(buffer, reduce_op="mean"))  # type: ignore[arg-type]
