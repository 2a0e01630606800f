"""Where a run is executed: devices, precision, processes and memory format, as its hardware asks."""

import warnings

import torch
from lightning_fabric import Fabric

from metacal.bf16 import check_bf16
from metacal.errors import InvalidValueError
from metacal.lab.data import Dataset
from metacal.lab.training.spec import Hardware, RunSpec

PRECISIONS = {"32": "32-true", "64": "64-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def chosen_accelerator(name: str) -> str:
    """For Fabric, whose own ``auto`` and ``gpu`` take Apple's GPUs first: these have no float64, which metrics need.

    Examples:
        >>> chosen_accelerator("gpu")
        'cuda'
    """
    return {"gpu": "cuda", "auto": "cuda" if torch.cuda.is_available() else "cpu"}.get(name, name)


def make_fabric(spec: RunSpec, hardware: Hardware) -> Fabric:
    """Devices, precision and processes, started."""
    if hardware.threads is not None:
        torch.set_num_threads(hardware.threads)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*AMP with fp16 is not supported on CPU")  # refused below
            fabric = Fabric(
                accelerator=chosen_accelerator(hardware.accelerator),
                devices=hardware.devices,
                strategy=hardware.strategy,
                precision=PRECISIONS[spec.precision],  # type: ignore[arg-type]
            )
    except (RuntimeError, ValueError) as error:
        raise InvalidValueError(
            f"`accelerator`, `devices` and `strategy` must be what this machine has: {str(error).splitlines()[0]}"
        ) from None
    if spec.precision == "16" and fabric.device.type == "cpu":
        raise InvalidValueError("`precision` must be 32, 64 or bf16 on a CPU, got 16.")
    if spec.precision == "bf16":
        check_bf16(fabric.device.type, instead="precision=32")
    fabric.launch()
    return fabric


def wants_channels_last(hardware: Hardware, dataset: Dataset, fabric: Fabric) -> bool:
    """Whether image channels are to be stored last: as asked, or where that is faster.

    On CUDA it is known to be; on a CPU small networks gain a quarter and large ones nothing, but lose nothing either
    (results/benchmarks/channels_last.json).
    """
    if hardware.channels_last is not None:
        return hardware.channels_last
    return dataset.kind == "image" and fabric.device.type in ("cuda", "cpu")
