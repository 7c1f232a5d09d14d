"""Tensors without data, under which both packages trace: torch's FakeTensorMode."""

from torch._subclasses.fake_tensor import FakeTensorMode


class FakeMode(FakeTensorMode):
    """As torch's.  (fakes/mode.py gives it another `__torch_dispatch__`, with which results have
    the strides and errors that eager's kernels give.)"""
