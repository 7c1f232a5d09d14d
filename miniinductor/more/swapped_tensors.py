"""(coverage) Tensors of which a fake mode has made fakes can be swapped afterwards.

    compiled(x)
    torch.utils.swap_tensors(x, y)      # refuses a tensor to which a weak reference points

In:   a fake mode that has seen the program's tensors.   Out: one that has no reference to them.

PyTorch: `_clear_fake_mode_weakrefs` in torch/_dynamo/convert_frame.py.
"""

from torch._subclasses.fake_tensor import FakeTensorMode


def let_go(mode: FakeTensorMode) -> None:
    """Forget which real tensors the mode knows, once a trace has ended: what it makes from then on
    are other fakes."""
    mode.fake_tensor_converter.meta_converter.describer.lookup_tensor.clear()
