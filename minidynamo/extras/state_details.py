"""What is guarded of the thread's state only where a program has changed it.

In:   the thread in which a frame is compiled.
Out:  guards on the dtypes of autocast while it is on, and on the default device of a `with
      torch.device(...)`, which is a torch-function mode.

    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(x)        # AUTOCAST_DTYPES: another dtype takes another entry
"""

import torch

from ..entry_guards import DETAILS


def autocast_dtypes() -> list[tuple[bool, torch.dtype]]:
    return [
        (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
        for kind in ("cpu", "cuda")
    ]


DETAILS.append((("AUTOCAST_DTYPES", autocast_dtypes), torch._C._is_any_autocast_enabled))
DETAILS.append((("DEFAULT_DEVICE", torch.get_default_device), torch._C._len_torch_function_stack))
