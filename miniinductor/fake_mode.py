"""Tensors without data, under which both packages trace: torch's FakeTensorMode."""

from torch._subclasses.fake_tensor import FakeTensorMode


class FakeMode(FakeTensorMode):
    """A FakeTensorMode, which coverage makes to give what eager's kernels give (fakes/mode.py)."""
