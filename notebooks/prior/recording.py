"""Record and replay: run the function once on real tensors and write down every operation.

In:   a function and example tensors.  Out: a `Recording`; calling it runs the tape again on other
      tensors.

    >>> tape = record(lambda x: torch.relu(x) + 1, torch.ones(2))
    >>> tape(torch.tensor([-3., 3.]))
    tensor([1., 4.])

Mirrors torch.jit.trace (torch/jit/_trace.py).  What it cannot see: anything that is not a tensor
operation.  A branch was taken once and is taken for ever; a Python number computed from a tensor is
the number of the recording.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name


class Recording(TorchFunctionMode):
    """The tape: [(operation, arguments, keyword arguments, slot of the result)]."""

    def __init__(self) -> None:
        super().__init__()
        self.tape: list[tuple[Callable, Any, Any, Slot]] = []
        self.slots: dict[int, int] = {}
        self.keep: list[torch.Tensor] = []
        self.result: Any = None

    def __torch_function__(
        self,
        operation: Callable,
        types: Any,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.tape.append(
                (operation, self.encode(args), self.encode(kwargs or {}), self.slot(result))
            )
        return result

    def slot(self, tensor: torch.Tensor) -> "Slot":
        self.keep.append(tensor)  # an id is only unique while the tensor lives
        return Slot(self.slots.setdefault(id(tensor), len(self.slots)))

    def encode(self, value: Any) -> Any:
        """Tensors that the tape knows become slots; everything else is a constant of the tape."""
        if isinstance(value, torch.Tensor) and id(value) in self.slots:
            return Slot(self.slots[id(value)])
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.encode, value))
        return {k: self.encode(v) for k, v in value.items()} if isinstance(value, dict) else value

    def __call__(self, *inputs: torch.Tensor) -> Any:
        values = dict(enumerate(inputs))

        def decode(value):
            if isinstance(value, Slot):
                return values[value.number]
            if isinstance(value, (tuple, list)):
                return type(value)(map(decode, value))
            return {k: decode(v) for k, v in value.items()} if isinstance(value, dict) else value

        for operation, args, kwargs, slot in self.tape:
            values[slot.number] = operation(*decode(args), **decode(kwargs))
        return decode(self.result)

    def __repr__(self) -> str:
        lines = [
            f"{slot} = {resolve_name(operation) or operation}({', '.join(map(repr, args))})"
            for operation, args, _, slot in self.tape
        ]
        return "\n".join([*lines, f"return {self.result}"])


class Slot:
    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"v{self.number}"


def record(function: Callable, *inputs: torch.Tensor) -> Recording:
    """Run `function(*inputs)` once under the recorder."""
    recording = Recording()
    for tensor in inputs:
        recording.slot(tensor)
    with recording:
        result = function(*inputs)
    recording.result = recording.encode(result)
    return recording
