"""Programs that ask whether they are compiled, and then go another way than plain Python goes.

In:   a call of `torch.compiler.is_compiling()`; later, in the same graph, one of
      `scaled_dot_product_attention` on a GPU with a mask that is expanded along its rows.
Out:  True, to all but torch's own code; the same call with a copy of that mask, in memory that
      the library's fused kernels read.

    if torch.compiler.is_compiling():
        mask = torch.ones((), dtype=torch.bool, device="cuda").expand(2, 1, 500, 500)
    attention(q, k, v, mask)        # the graph: attention(q, k, v, mask.contiguous())

transformers makes masks that hide nothing in this way.  For an expanded mask the library has only
its plain kernels: two products and a softmax over a tensor of all scores.  Where elements are
dropped, too, the fused kernel drops other ones than the plain kernel would.  That is no difference
to plain Python, which never comes to this call.  (Where nothing is dropped, and our backend
compiles the graph, miniinductor/passes/attention_masks.py copies such a mask in any program.)
# PyTorch: keeps the mask and the plain kernels
"""

import os
from typing import Any

import torch
from torch.nn import functional as F

from .. import hooks
from ..directions import graph_break, is_compiling
from ..extras.extending import noted
from ..skipping import TORCH
from ..symbolic_eval.registry import rules
from ..variables.base import Args, Frame, Variable
from ..variables.constant import ConstantVar
from ..variables.tensor import TensorVar
from .refusals import refused
from .torch_state import at

QUESTIONS = ("compiler.is_compiling", "compiler.is_dynamo_compiling", "_utils.is_compiling")
OPTIMIZERS = os.path.join(TORCH, "optim", "")
# Files and folders of torch's that ask, and go two ways to the same values.
SAME_VALUES = (
    *("optim/", "nn/modules/module.py", "nn/parallel/", "nn/attention/", "_higher_order_ops/"),
    *("utils/checkpoint.py", "autograd/graph.py", "_utils.py", "fx/", "compiler/"),
    *("distributed/_functional_collectives.py", "distributed/device_mesh.py"),
)
MASK = 3  # its position among the arguments of the attention


class Asked:
    """Has this graph's program asked?"""

    is_so = False


def yes(tx: Frame) -> Variable:
    """The answer to `is_compiling()`, which is noted.  Torch's own code is told that it is not
    compiled, as its two ways may give different values (padded rows of a TransformerEncoder) or
    errors; but for files where they give the same, and the other one cannot be traced."""
    asker = tx.code.co_filename
    if asker.startswith(TORCH) and not asker[len(TORCH) :].startswith(SAME_VALUES):
        return ConstantVar(False)
    capturable = tx.locals.get("capturable")  # of an optimizer, which then looks at devices
    if asker.startswith(OPTIMIZERS) and capturable is not None and capturable.truth(tx):
        return ConstantVar(False)
    noted(tx.output, Asked).is_so = True
    return ConstantVar(True)


def with_dense_mask(tx: Frame, target: Any, args: Args, kwargs: dict) -> tuple[Any, Args, dict]:
    """The call, with its mask in memory that the fused kernels read."""
    if target is not F.scaled_dot_product_attention or not noted(tx.output, Asked).is_so:
        return target, args, kwargs
    given = kwargs["attn_mask"] if "attn_mask" in kwargs else (*args, *[None] * 4)[MASK]
    if not isinstance(given, TensorVar) or not is_expanded(given.fake):
        return target, args, kwargs
    mask = given.call_method(tx, "contiguous", [], {})
    if "attn_mask" in kwargs:
        return target, args, {**kwargs, "attn_mask": mask}
    return target, [*args[:MASK], mask, *args[MASK + 1 :]], kwargs


def is_expanded(mask: torch.Tensor) -> bool:
    """Is it on a GPU, and are the elements of a row one and the same in memory?"""
    return on_gpu(mask) and mask.dim() > 0 and mask.stride(-1) == 0 and mask.shape[-1] != 1


def on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


rules({(is_compiling, *map(at, QUESTIONS)): yes})
rules(
    {
        graph_break: refused(
            "graph_break()", "minidynamo.graph_break() was called", "remove the call"
        )
    }
)
hooks.BEFORE_NODES.append(with_dense_mask)
