"""Tensors without data, under which both packages trace: torch's FakeTensorMode, which an exception
from outside may cut short.

While an op runs under a mode, C++ keeps the mode aside and puts it back when the op ends, or
raises.  It ends the process if it finds a fake mode in that place by then: one whose `with` block
in torch was cut short, between its `__enter__` and its `__exit__`, by a signal's handler, say.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

FAKE = torch._C._TorchDispatchModeKey.FAKE
# (a fake result, the op's arguments) -> the result as eager's kernel lays it out, for ops of which
# torch's own shape functions say something else
Correction = Callable[..., torch.Tensor]
CORRECTIONS: dict[torch._ops.OpOverload, Correction] = {}


def corrects(*ops: torch._ops.OpOverload) -> Callable[[Correction], Correction]:
    """Decorator: this function corrects the fake results of these ops."""

    def register(correction: Correction) -> Correction:
        CORRECTIONS.update(dict.fromkeys(ops, correction))
        return correction

    return register


class FakeMode(FakeTensorMode):
    """A FakeTensorMode that leaves its place free, whatever is raised."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the method below needs none of the wrapping that torch's own has

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            out = super().__torch_dispatch__(func, types, args, kwargs)
            correction = CORRECTIONS.get(func)
            return out if correction is None else self.corrected(correction, out, args, kwargs)
        except BaseException:
            torch._C._unset_dispatch_mode(FAKE)
            raise

    def corrected(self, correction: Correction, out: Any, args: tuple, kwargs: dict | None) -> Any:
        """`out`, laid out as eager's kernel does it: each result that has the first one's shape."""
        results = out if isinstance(out, (tuple, list)) else [out]
        if results[0].device.type != "cpu":
            return out
        with self:
            found = [
                correction(result, *args, **(kwargs or {}))
                if result.shape == results[0].shape
                else result
                for result in results
            ]
        return tuple(found) if results is out else found[0]
