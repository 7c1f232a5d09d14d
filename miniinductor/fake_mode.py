"""Tensors without data, under which both packages trace: torch's FakeTensorMode, which an exception
from outside may cut short.

While an op runs under a mode, C++ keeps the mode aside and puts it back when the op ends, or
raises.  It ends the process if it finds a fake mode in that place by then: one whose `with` block
in torch was cut short, between its `__enter__` and its `__exit__`, by a signal's handler, say.
"""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

FAKE = torch._C._TorchDispatchModeKey.FAKE


class FakeMode(FakeTensorMode):
    """A FakeTensorMode that leaves its place free, whatever is raised."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the method below needs none of the wrapping that torch's own has

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None):
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        except BaseException:
            torch._C._unset_dispatch_mode(FAKE)
            raise
