"""Every switch of miniinductor, with its default.  `config.patch(name=value)` sets some for a
`with` block.

    >>> with miniinductor.config.patch(fusion=False):
    ...     compiled = miniinductor.compile_fx(gm, inputs)     # one kernel per buffer: the ablation

Mirrors torch/_inductor/config.py (hundreds of flags there; here each optimisation has exactly one).
"""

import os
import sys
from typing import Any

from .options import checked


def user_folder() -> str:
    """Where this user's caches belong, by the conventions of the system; "" if there is no home."""
    home = os.path.expanduser("~")
    system = "Library/Caches" if sys.platform == "darwin" else ".cache"
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # (a relative one is to be ignored)
        base = os.path.join(home, system)
    return os.path.join(base, "miniinductor") if os.path.isabs(base) else ""


def chosen_folder() -> str:
    """Where MINIINDUCTOR_CACHE says.  `~` is replaced by the home, as a shell would do; if it is
    still there, there is no home.  A relative path begins where the process begins."""
    chosen = os.path.expanduser(os.environ.get("MINIINDUCTOR_CACHE", ""))
    return os.path.abspath(chosen) if chosen and chosen[0] != "~" else user_folder()


# --- fusion and memory
fusion = True  # the scheduler merges nodes into one kernel
inlining = True  # pointwise producers are inlined into their consumers instead of being stored
# C++: a pointwise part may join a reduction that runs over the same loops in another order, as
# batch norm has them
loop_reordering = True
buffer_reuse = True  # the memory of a dead buffer serves a later one
# a kernel writes straight into an input that the program writes; in C++ also over a buffer that it
# reads for the last time
in_place = True
# independent kernels of the same body become one (an optimizer's step over many parameters)
foreach = True
# a reduction with few outputs is done in parts, so that every processor has work (Triton: by two
# kernels)
split_reductions = True

# --- kernels in C++
vectorize = True  # inner loops are `omp simd`; False gives plain scalar loops
openmp = True  # outer loops run on all threads
tiling = True  # a transposed access runs over tiles
row_reductions = True  # a sum over dim 0 adds up whole rows: its lanes run over the columns
# which language kernels of CPU tensors are in; "triton": in Triton's interpreter
# (TRITON_INTERPRET=1), for study
cpu_backend = "cpp"

# --- kernels in Triton
max_autotune = False  # every block size of every kernel is tried, not only where many bytes move
# which matrix products are kernels of ours, with fused epilogues: those with unaligned rows, which
# libraries compute slowly, or "always"
matmul_templates = "unaligned"

# --- graphs
# random ops are eager's kernels and draw eager's very numbers; False: fused kernels draw
# (lowering/random.py).  Dropout masks are then computed again in backward instead of being kept,
# and torch.manual_seed still decides the numbers.
fallback_random = True
channels_last = True  # convolutions get images in channels-last memory where that is faster
onednn_products = True  # CPU: large float32 matrix products by oneDNN instead of BLAS
partition = "min-cut"  # training: what is kept for backward; "save-everything", "recompute-all"
# training: a graph is compiled in pieces of about so many bytes of parameters, so that DDP can send
# the later layers' gradients while the earlier layers' are computed; 0: in one piece
gradient_buckets = 0

# --- checks, files
verify = True  # the verifier checks the IR between stages
# a fault of ours in a backward half raises instead of running that half eagerly
raise_internal_errors = os.environ.get("MINI_RAISE", "0") == "1"
# printed on stderr: 1: ATen graphs, 2: + loop IR, 3: + fusion decisions, 4: + kernels
debug = int(os.environ.get("MINI_DEBUG", "0"))
keep_steps = False  # the record has the graph after each pass (`explain` switches it on)
cache_dir = chosen_folder()
compiler_seconds = 300  # a C++ compiler that takes longer is killed; then the graph runs eagerly

_WORDS = {  # option -> all that it may be; options.py looks here when one is set
    "cpu_backend": ("cpp", "triton"),
    "matmul_templates": ("always", "unaligned"),
    "partition": ("min-cut", "save-everything", "recompute-all"),
}


def switches() -> dict[str, Any]:
    """Every option as it is now, for `patch`."""
    return {
        name: value
        for name, value in globals().items()
        if isinstance(value, (bool, int, str, tuple)) and not name.startswith("_")
    }


patch = checked(__name__)
