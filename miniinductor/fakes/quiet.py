"""What torch warns of while it looks at a tensor, where the program has made warnings errors.

In:   a tensor of which a fake is to be made.  Out: the fake, and no warning.

    warnings.simplefilter("error")
    compiled(x * 2)             # torch reads the `.grad` of this tensor, which is no leaf

torch hides that warning where it is shown.  A filter raises it before that, and the frame would
run as plain Python.  The program's filters are looked at again only then: they are the process's,
and another thread may be changing them.
"""

import re
import warnings
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ..fake_mode import FakeMode

NO_LEAF = "The .grad attribute of a Tensor that is not a leaf"


def from_tensor(self: FakeMode, tensor: torch.Tensor, **options: Any) -> torch.Tensor:
    try:
        return FakeTensorMode.from_tensor(self, tensor, **options)
    except UserWarning as warning:
        if not str(warning).startswith(NO_LEAF):
            raise
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=re.escape(NO_LEAF))
        return FakeTensorMode.from_tensor(self, tensor, **options)


setattr(FakeMode, "from_tensor", from_tensor)
