"""Joins batches over ranks, so that every rank computes the same joint meta step."""

import math

import torch
from torch import Tensor
from torch import distributed as dist

from metacal.errors import InvalidValueError

PROCESS_STRIDE = 0x9E3779B1  # odd and large: CPU generators look at the lower 32 bits of a seed


def world_size() -> int:
    """Number of training processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def own_rank() -> int:
    """Rank of this process."""
    return dist.get_rank() if world_size() > 1 else 0


def own_seed(seed: int) -> int:
    """Return a different seed for each process, the given one for the first."""
    return seed + PROCESS_STRIDE * own_rank()


def gather_batches(batches: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Each ``(features, labels)`` pair joined over all ranks, in rank order; sizes may differ from rank to rank.

    One all-gather carries everything: rows of features with their label as a last column, padded to the longest rank.
    """
    ranks = world_size()
    if ranks == 1:
        return batches
    shape = batches[0][0].shape[1:]
    if any(len(x) != len(y) for x, y in batches):
        raise InvalidValueError("`head` must be a linear layer to be given more than one row per label under DDP.")
    # Integer features may be too narrow for labels; floating ones are float32 or wider.
    dtype = batches[0][0].dtype
    wide = dtype if dtype.is_floating_point else torch.int64
    rows = torch.cat(
        [torch.cat((x.reshape(len(x), math.prod(shape)).to(wide), y.unsqueeze(1).to(wide)), dim=1) for x, y in batches]
    )
    lengths = _of_all_ranks([len(y) for _, y in batches], rows.device)
    padded = rows.new_zeros(max(sum(length) for length in lengths), rows.shape[1])
    padded[: len(rows)] = rows
    received = [torch.empty_like(padded) for _ in range(ranks)]
    dist.all_gather(received, padded)
    parts = [torch.split(block[: sum(length)], length) for block, length in zip(received, lengths, strict=True)]
    joined = [torch.cat([part[number] for part in parts]) for number in range(len(batches))]
    return [(block[:, :-1].reshape(len(block), *shape).to(dtype), block[:, -1].to(torch.int64)) for block in joined]


def joint_rows(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, slice]:
    """Return rows and labels of all ranks, in rank order, and the slice of this rank."""
    if world_size() == 1:
        return rows, labels, slice(None)
    ((joint, joint_labels),) = gather_batches([(rows, labels)])
    lengths = [length for (length,) in _of_all_ranks([len(labels)], rows.device)]
    first = sum(lengths[: own_rank()])
    return joint, joint_labels, slice(first, first + len(labels))


def joint_count(samples: int, device: torch.device) -> int:
    """Number of samples over all ranks."""
    return sum(count for (count,) in _of_all_ranks([samples], device)) if world_size() > 1 else samples


def summed_over_ranks(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Sum each tensor over all ranks, in one message."""
    if world_size() == 1:
        return tensors
    flat = torch.cat([tensor.double().reshape(-1) for tensor in tensors])
    dist.all_reduce(flat)
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    return tuple(part.reshape(tensor.shape).to(tensor.dtype) for part, tensor in zip(parts, tensors, strict=True))


def _of_all_ranks(numbers: list[int], device: torch.device) -> list[list[int]]:
    own = torch.tensor(numbers, device=device)
    gathered = [torch.empty_like(own) for _ in range(world_size())]
    dist.all_gather(gathered, own)
    found: list[list[int]] = torch.stack(gathered).tolist()
    return found
