"""`AveragedWeights`: the weights of a run averaged by torch's own means, over its steps or over its last epochs."""

from collections.abc import Iterable

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

SWA_START = 0.75
"""Share of the epochs after which ``swa`` begins (Izmailov et al. 2018)."""


class AveragedWeights:
    """What is validated and scored in place of the model: ``ema``, or ``swa``, the mean over the last quarter's epochs.

    Args:
        model: what is trained; copied.
        kind: ``"ema"``: a running average, moved after each step; ``"swa"``: moved after each epoch. Until it begins,
            the weights are those of the model.
        decay: of the running average, per step.
        epochs: of the run.
    """

    def __init__(self, model: nn.Module, kind: str, *, decay: float, epochs: int) -> None:
        self.trained, self.kind, self.start = model, kind, int(SWA_START * epochs) if kind == "swa" else 0
        average = get_ema_multi_avg_fn(decay) if kind == "ema" else None  # type: ignore[no-untyped-call]
        self.model = AveragedModel(model, multi_avg_fn=average)

    def after_step(self) -> None:
        """Take a step of the optimiser in."""
        if self.kind == "ema":
            self.model.update_parameters(self.trained)

    def begins_after(self, epoch: int) -> bool:
        """Whether the average of later epochs starts with this one, numbered from 0."""
        return 0 < self.start == epoch

    def after_epoch(self, epoch: int, batches: Iterable[tuple[Tensor, Tensor]], fabric: Fabric) -> None:
        """Take an epoch in, then compute the statistics of batch normalisation from its training batches."""
        if self.kind == "swa":
            if epoch <= self.start:
                self.model.n_averaged.zero_()  # the next one is copied
            self.model.update_parameters(self.trained)
        dtype = next(self.model.parameters()).dtype
        with fabric.autocast():
            update_bn((x.to(dtype) if x.is_floating_point() else x for x, _ in batches), self.model)
        if fabric.world_size > 1:
            self._join_statistics(fabric)

    @torch.no_grad()
    def _join_statistics(self, fabric: Fabric) -> None:
        for module in self.model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                for buffer in (module.running_mean, module.running_var):
                    if buffer is not None:
                        buffer.copy_(fabric.all_reduce(buffer, reduce_op="mean"))  # type: ignore[arg-type]
