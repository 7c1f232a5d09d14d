"""The thread's state that torch's dispatcher looks at, beside an operation's tensors.

    with Mode(): ...            # a TorchDispatchMode: the key Python is in the thread's set
    torch.func.vmap(f)(x)       # FuncTorchBatched and others
    with dual_level(): ...      # tensors have tangents

In:   this thread.   Out: `is_unusual()`: kernels of ours would pass by what the program has asked
      for, so plain Python runs (minidynamo), and the graph op by op (a backward half).

Which keys a thread includes and excludes, and who answers for them:

    key                                       in a thread           who looks
    BackendSelect                             always included       nobody: harmless
    Autocast*                                 excluded, or not      guarded: AUTOCAST
    Named                                     excluded, or not      nobody: harmless
    ADInplaceOrView, Autograd*                of inference mode     guarded: INFERENCE
    all others, and Autograd* otherwise       seldom                refused
"""

import torch
from torch.autograd import forward_ad

included = torch._C._dispatch_tls_local_include_set
excluded = torch._C._dispatch_tls_local_exclude_set


def bits(*names: str) -> int:
    """The keys of these names, as a set is written in one number."""
    found = 0
    for name in names:
        found |= torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)).raw_repr()
    return found


# (one bit beside the other, from the first to the last; some have no name in Python)
AUTOCAST = 2 * bits("AutocastPrivateUse1") - bits("AutocastCPU")
# In a backward pass torch 2.11 excludes the key of named tensors, which no graph of ours has.  It
# has no name in Python, and lies in front of Conjugate; later torchs have none.
NAMES = bits("Conjugate") >> 1 & ~bits("Functionalize")
PASSED_OVER = AUTOCAST | NAMES  # among the excluded keys
ALWAYS = bits("BackendSelect", "ADInplaceOrView")  # in the set of included keys


def keys() -> tuple[int, int]:
    """What this thread includes and excludes, where it differs from the usual; without autocast."""
    return included().raw_repr() ^ ALWAYS, excluded().raw_repr() & ~PASSED_OVER


def keys_of_inference_mode() -> tuple[int, int]:
    with torch.inference_mode(False):
        before = keys()
    with torch.inference_mode():
        after = keys()
    return before[0] ^ after[0], before[1] ^ after[1]


INFERENCE = keys_of_inference_mode()


def is_unusual() -> bool:
    """Does torch do more in this thread than the kernels of a graph would?"""
    return keys() not in ((0, 0), INFERENCE) or forward_ad._current_level >= 0
