"""Floats that change from call to call, where an operation takes a number and no tensor.

In:   an operation that floats.py has left a float symbol in: `torch.lerp(x, y, rate)`, `x ** p`.
Out:  the same operation with the number that the graph reads from the float's 0-d tensor in each
      call: two compilations, where each value would be one.

    number = ...                        # an input: 0-d, float64
    item = number.item()                # the program's own float again, to the last bit
    lerp = torch.lerp(x, y, item)       # eager's kernel, with eager's rounding

Only what gives tensors of the same sizes, strides and dtypes for every number is in the table, and
no view of an argument: the operation is run with fake tensors and the number of this run, which
guards nothing.  Kernels have no float arguments: the backend cuts its graph at such an operation
(miniinductor/extras/data_dependent.py).  # PyTorch: the same, with the number as an argument of
the operation's kernel where torch/_inductor generates one.
"""

import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ...extras.extending import noted
from ... import hooks
from ...extras.unbacked_sizes import create_unbacked
from ...foreign import ours
from ..base import Frame, Variable
from ..constant import ConstantVar
from ..symbolic import SymVar
from ..tensor import TensorVar
from .floats import Floats, example_of, is_float, is_other_than_zero, tensor_of

ARITHMETIC = """
    add sub rsub pow float_power xlogy special_xlogy special_xlog1py lerp addcmul addcdiv
    nan_to_num logit special_logit isclose fill full_like new_full
"""
PRODUCTS = "addmm addmv addr addbmm baddbmm scaled_dot_product_attention"
ACTIVATIONS = """
    leaky_relu elu celu softplus hardtanh _threshold threshold softshrink hardshrink rrelu
"""
NORMS = """
    norm linalg_norm linalg_vector_norm vector_norm renorm normalize layer_norm rms_norm group_norm
    dist pdist cdist pairwise_distance cosine_similarity
"""
LOSSES = """
    huber_loss smooth_l1_loss cross_entropy poisson_nll_loss hinge_embedding_loss
    margin_ranking_loss triplet_margin_loss cosine_embedding_loss multi_margin_loss
"""
OTHERS = """
    linspace logspace quantile nanquantile index_add index_fill scatter pad
    _foreach_addcmul _foreach_addcdiv _foreach_lerp _foreach_pow
"""
TAKING_NUMBERS = frozenset(
    " ".join((ARITHMETIC, PRODUCTS, ACTIVATIONS, NORMS, LOSSES, OTHERS)).split()
)


# they give their argument itself, of which a number of zero leaves nothing out
DROPPING = frozenset("dropout alpha_dropout dropout1d dropout2d dropout3d".split())


class ReadNumber(Variable):
    """The number that `node` gives in a call: `number` in this one."""

    def __init__(self, node: torch.fx.Node, number: float) -> None:
        self.node, self.number = node, number

    def argument(self, convert: Callable[[Variable], Any]) -> Any:
        """To be run with: the number; in the graph: the node."""
        as_any: Any = self.number
        return convert(TensorVar(self.node, as_any))


class Reads(dict[Any, ReadNumber]):
    """Expression over float symbols -> the number of it that the graph reads."""


def read(tx: Frame, variable: SymVar) -> ReadNumber:
    """The float as the graph reads it, once for each expression."""
    output, expr = tx.output, variable.value.node.expr
    reads = noted(output, Reads)
    if expr not in reads:
        tensor = tensor_of(output, variable)
        node = output.graph.call_method("item", (tensor.node,))
        number = create_unbacked(output.shape_env, "item()", kind=float)
        output.describe_node(tx, node, number).meta["reads_float"] = True
        output.symbol_nodes[number.node.expr] = node
        reads[expr] = ReadNumber(node, example_of(variable))
    return reads[expr]


def with_read_numbers(tx: Frame, target: Any, args: Any, kwargs: Any) -> Any:
    """(target, args, kwargs) of a call in the graph, with numbers that are read in each call in the
    place of floats that change."""
    if not noted(tx.output, Floats) or not any(map(is_float, (*args, *kwargs.values()))):
        return target, args, kwargs
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if "out" in kwargs or is_in_place(target, args, kwargs):
        return target, args, kwargs
    if type(target) is str and name.endswith("_") and name[:-1] in TAKING_NUMBERS:
        return written_in_place(tx, target, args, kwargs)
    if name not in TAKING_NUMBERS and not drops_some(name, (*args, *kwargs.values())):
        return target, args, kwargs
    args = [read(tx, value) if is_float(value) else value for value in args]
    kwargs = {key: read(tx, v) if is_float(v) else v for key, v in kwargs.items()}
    return target, args, kwargs


def written_in_place(tx: Frame, name: str, args: Any, kwargs: Any) -> Any:
    """x.lerp_(y, rate) as x.copy_(x.lerp(y, rate)), where that gives the same."""
    own = args[0].fake
    of = args[0]
    if torch.is_grad_enabled() and own.requires_grad:  # autograd may keep what is written
        of = tx.output.call_graph(tx, "call_method", "clone", [of], {})
    made: Any = tx.output.call_graph(tx, "call_method", name[:-1], [of, *args[1:]], kwargs)
    if isinstance(made, TensorVar) and (made.fake.dtype, made.fake.shape) == (own.dtype, own.shape):
        return "copy_", [args[0], made], {}
    return name, args, kwargs


def drops_some(name: str, values: Iterable[Any]) -> bool:
    """Guarded: is it a dropout that makes a new tensor?"""
    return name in DROPPING and all(is_other_than_zero(v) for v in values if is_float(v))


def is_in_place(target: Any, args: Any, kwargs: Any) -> bool:
    """Does torch.nn.functional write the result over its argument?"""
    if not isinstance(target, types.FunctionType):
        return False
    try:
        given = inspect.signature(target).bind(*args, **kwargs).arguments
    except ours(TypeError):
        return False
    flag = given.get("inplace")
    return flag is not None and not (type(flag) is ConstantVar and flag.value is False)


def drop_unread(_: object, made: torch.fx.GraphModule) -> None:
    """Erase the numbers that nothing takes: an operation gave a tensor that is known, or failed."""
    unread = [n for n in made.graph.nodes if n.meta.get("reads_float") and not n.users]
    for node in unread:
        made.graph.erase_node(node)
    if unread:
        made.recompile()


hooks.BEFORE_NODES.append(with_read_numbers)
hooks.GRAPH_MODULES.append(drop_unread)
