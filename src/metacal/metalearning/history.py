"""`History`: what happened at each meta step, kept on the device and thinned out so that it never grows large."""

import torch
from torch import Tensor

MOST_RECORDS = 8192


class History:
    """Rows of scalars by name; every second row is dropped, and half as many kept from then on, when it is full."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.steps: list[int] = []
        self.rows: list[Tensor] = []
        self.stride = 1
        self.seen = 0
        self.last: Tensor | None = None

    def add(self, step: int, values: dict[str, Tensor]) -> None:
        """Add a row; nothing is copied to the host."""
        if not self.names:
            self.names = list(values)
        self.last = torch.stack([values[name].detach().float() for name in self.names])
        if self.rows and self.rows[0].device != self.last.device:  # restored, or the model has moved
            self.rows = list(torch.stack(self.rows).to(self.last.device))
        if self.seen % self.stride == 0:
            self.steps.append(step)
            self.rows.append(self.last)
        self.seen += 1
        if len(self.rows) >= MOST_RECORDS:
            self.steps, self.rows, self.stride = self.steps[::2], self.rows[::2], 2 * self.stride

    def latest(self) -> dict[str, Tensor]:
        """The row added last, as scalars where they are; empty if there is none."""
        return {} if self.last is None else dict(zip(self.names, self.last, strict=True))

    def records(self) -> list[dict[str, float]]:
        """Rows as dictionaries of numbers, oldest first, each with its ``step``."""
        if not self.rows:
            return []
        table = torch.stack(self.rows).tolist()
        return [
            {"step": step, **dict(zip(self.names, row, strict=True))}
            for step, row in zip(self.steps, table, strict=True)
        ]

    def state_dict(self) -> dict[str, object]:
        """Plain numbers and tensors."""
        rows = torch.stack(self.rows).cpu() if self.rows else torch.zeros(0, len(self.names))
        names, steps = list(self.names), list(self.steps)
        last = {} if self.last is None else {"last": self.last.cpu()}
        return {"names": names, "steps": steps, "rows": rows, "stride": self.stride, "seen": self.seen, **last}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Take over a saved history."""
        self.names = list(state["names"])  # type: ignore[call-overload]
        self.steps = list(state["steps"])  # type: ignore[call-overload]
        rows = state["rows"]
        assert isinstance(rows, Tensor)
        self.rows = list(rows.unbind(0))
        self.stride, self.seen = int(state["stride"]), int(state["seen"])  # type: ignore[call-overload]
        is_last_kept = self.seen > 0 and (self.seen - 1) % self.stride == 0
        last = state.get("last", self.rows[-1] if is_last_kept else None)  # not every state says it
        assert last is None or isinstance(last, Tensor)
        self.last = last
