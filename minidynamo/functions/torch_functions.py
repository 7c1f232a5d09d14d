"""Torch functions that are no plain nodes: torch.tensor, checks, foreach, autograd functions.

torch.tensor([1, 2])        torch._check(n > 0)        MyFunction.apply(x)

The first step of torch's optimizers: `_init_group` fills the state while the frame is traced.

    optimizer = torch.optim.Adam(parameters)
    step = minidynamo.compile(optimizer.step)       # one compilation; the second step reuses it

In:   a call of `_init_group` before anything has been computed or written in the frame.
Out:  the optimizer with its state, as plain Python would have it at this moment; the frame is
      traced anew with it, and its guards are those of every later step.

A program's own optimizers, and a step behind other work, fill their state in the graph.
Mirrors torch/_dynamo/variables/optimizer.py (`call_method` of `_init_group`).
"""

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from torch.optim.optimizer import _get_value, _stack_if_compiling

from miniinductor.errors import ours
from miniinductor.sizes.symbols import is_contiguous

from ..errors import Break, Restart
from ..graph.output_graph import call_state
from ..variables.base import Frame, Variable
from ..variables.constant import NUMPY, ConstantVar
from ..variables.dicts import DictVar, ListVar, SequenceVar, TupleVar
from ..variables.rules import NONE, refused, rule, rules
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar
from .arrays import ArrayVar, tensor_of
from .custom_functions import written_objects
from .tensors_of_numbers import of_symbols, of_tensors
from .torch_state import at

ELSEWHERE = """
    compiler.is_exporting fx._symbolic_trace.is_fx_tracing jit.is_scripting jit.is_tracing
    onnx.is_in_onnx_export
    cuda.is_current_stream_capturing xpu.is_current_stream_capturing
"""
MASK = 3  # its position among the arguments of the attention
CHANGES_STATE = """
    manual_seed seed get_rng_state set_rng_state initial_seed use_deterministic_algorithms
    set_num_threads save load compile set_default_device
"""
LOOPS = "cond while_loop _higher_order_ops.scan _higher_order_ops.map"


def _double(tx, value):
    """A step count, as a float64 tensor: eager reads a Python float out of it."""
    return value.call_method(tx, "double", [], {}) if isinstance(value, TensorVar) else value


def _pad(function, tx, input, pad, *args, **kwargs):
    """Where nothing is added eager keeps the strides, which torch's rule for symbolic amounts does
    not ask about: found by `make fuzz-shapes`.  Those of a contiguous tensor are the same."""
    amounts = list(pad.iterate(tx))
    asks = any(type(n) is SymVar for n in amounts)
    if asks and isinstance(input, TensorVar) and input.fake.layout is torch.strided:
        asks = not is_contiguous(input.fake)
    if asks and not any(tx.compare(">", n, ConstantVar(0)).truth(tx) for n in amounts):
        pad = TupleVar([n.constant() if type(n) is SymVar else n for n in amounts])
    return tx.call_leaf(function, [input, pad, *args], kwargs)


for _function in (torch.nn.functional.pad, torch.constant_pad_nd):
    rule(_function)(functools.partial(_pad, _function))


def _recurrent(function, tx, *args, **kwargs):
    """Where it learns on a GPU cuDNN's call runs as it is: torch's rule for gradients takes a step
    of time after another, hundreds of kernels where cuDNN has one.  Without gradients the call
    stays in the graph whole (miniinductor/lowering/whole_calls.py).  torch.compile breaks its graph
    at every recurrent module."""
    values = [v for a in args for v in (a.iterate(tx) if isinstance(a, SequenceVar) else [a])]
    fakes = [value.fake for value in values if isinstance(value, TensorVar)]
    learns = torch.is_grad_enabled() and any(fake.requires_grad for fake in fakes)
    if learns and any(map(on_gpu, fakes)):
        text = f"{function.__name__} of cuDNN, with gradients"
        raise Break("recurrent", text, "nothing is lost but one graph")
    return tx.call_leaf(function, args, kwargs)


def on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


for _function in (torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh, torch._VF.rnn_relu):
    rule(_function)(functools.partial(_recurrent, _function))


@rule(F.scaled_dot_product_attention)
def _attention(tx, *args, **kwargs):
    """Where the program has asked whether it is compiled, with its mask in memory that the
    library's fused kernels on a GPU read.

    transformers then makes masks that hide nothing, expanded along their rows, for which the
    library has only its plain kernels: two products and a softmax over a tensor of all scores.
    Where elements are dropped, too, the fused kernel drops other ones; plain Python never comes to
    this call.  (Where nothing is dropped, miniinductor/passes/attention_masks.py copies such a mask
    in any program.)  # PyTorch: keeps the mask and the plain kernels"""
    mask = kwargs["attn_mask"] if "attn_mask" in kwargs else (*args, *[None] * 4)[MASK]
    if tx.output.asks_if_compiling and isinstance(mask, TensorVar) and is_expanded(mask.fake):
        mask = mask.call_method(tx, "contiguous", [], {})
        if "attn_mask" in kwargs:
            kwargs = {**kwargs, "attn_mask": mask}
        else:
            args = [*args[:MASK], mask, *args[MASK + 1 :]]
    return tx.call_leaf(F.scaled_dot_product_attention, args, kwargs)


def is_expanded(mask: torch.Tensor) -> bool:
    """Is it on a GPU, and are the elements of a row one and the same in memory?"""
    return on_gpu(mask) and mask.dim() > 0 and mask.stride(-1) == 0 and mask.shape[-1] != 1


def _foreach(foreach, each):
    """torch._foreach_addcdiv_(params, a, b, values), where the values follow from step counts or
    learning rates: tensors, not numbers."""

    def handle(tx, *args, **kwargs):
        value = kwargs.get("value")
        values = args[3] if len(args) > 3 else None
        if not isinstance(values, SequenceVar) or not contains(tx, values, TensorVar):
            return tx.call_leaf(foreach, args, kwargs)
        for self, a, b, value in zip(*[arg.iterate(tx) for arg in args]):
            self.call_method(tx, each, [a, b], {"value": value})
        return NONE

    return handle


rule(torch._foreach_addcdiv_)(_foreach(torch._foreach_addcdiv_, "addcdiv_"))
rule(torch._foreach_addcmul_)(_foreach(torch._foreach_addcmul_, "addcmul_"))


@rule(torch._check, torch._check_is_size)
def _check(tx, condition, *_, **__):
    """What is checked of a size is a guard."""
    if type(condition) is SymVar:
        value = condition.value if condition.python_type() is bool else condition.value >= 0
        condition = ConstantVar(bool(value))
    if type(condition) is not ConstantVar or condition.value is not True:
        raise Break("torch", "torch._check() of something false, or of a tensor")


@rule(torch._assert)
def _assert(tx, condition, message):
    """The condition is a guard; nothing is asked of a message that nobody sees."""
    if type(condition) not in (SymVar, ConstantVar) or not condition.truth(tx):
        tx.call_leaf(torch._assert, [condition, message], {})


@rule(torch._is_all_true)
def _is_all_true(tx, *args, **kwargs):
    """torch.distributions checks arguments: an assertion in the graph (the backend "eager" runs
    it), and where it fails, the frame runs as plain Python, which says what is wrong.  # PyTorch:
    the checks are switched off."""
    result = tx.call_leaf(torch._is_all_true, args, kwargs)
    module = tx.globals.values.get("__name__")
    checked = str(module).startswith("torch.distributions.") and result.fake.is_cpu
    if checked and not tx.output.generates_code:
        tx.node(torch._assert_async, [result])
        return ConstantVar(True)
    return result


def _tensor(function, tx, *args, **kwargs):
    data = args[0] if args else kwargs["data" if "data" in kwargs else "obj"]
    if isinstance(data, TensorVar):
        return _tensor_of_tensor(tx, function, data, args[1:], kwargs)
    if isinstance(data, ArrayVar):
        return tensor_of(tx, function, data, args[1:], kwargs)
    if contains(tx, data, (*NUMPY, ArrayVar)):
        raise Break("argument", "a tensor of NumPy's numbers, which keeps their types")
    if contains(tx, data, TensorVar) and not isinstance(data, TensorVar):
        made = _tensor_of_symbols(tx, data, args[1:], kwargs, of_tensors)
        if made is not None:
            return made
        text = "torch.tensor() of tensors reads their values"
        raise Break("data-dependent", text, "use torch.stack")
    made = _tensor_of_symbols(tx, data, args[1:], kwargs)
    if made is not None:
        return made
    if isinstance(data, (ListVar, TupleVar)):
        args = [tx.output.wrap_result(tx.output.to_fake(data)), *args[1:]]
    if "copy" in kwargs or "obj" in kwargs:
        raise Break("arguments", "torch.asarray() with arguments that torch.tensor() does not have")
    return tx.node(torch.tensor, args, kwargs)


for _name in ("tensor", "as_tensor", "asarray"):
    rule(at(_name))(functools.partial(_tensor, at(_name)))


@rule(torch.tensor_split, torch.Tensor.tensor_split)
def _tensor_split(tx, *args, **kwargs):
    """Places in a tensor that the frame has made of numbers are those numbers."""
    places = args[1] if len(args) > 1 else kwargs.get("tensor_indices_or_sections")
    known = places.made_of_numbers(tx) if type(places) is TensorVar else None
    if known is None or known.dtype is not torch.int64 or known.dim() > 1:
        return tx.node(torch.tensor_split, args, kwargs)
    numbers = known.tolist()
    plain = ConstantVar(numbers) if known.dim() == 0 else TupleVar(list(map(ConstantVar, numbers)))
    name = "sections" if known.dim() == 0 else "indices"
    if len(args) > 1:
        return tx.node(torch.tensor_split, [args[0], plain, *args[2:]], kwargs)
    others = {key: v for key, v in kwargs.items() if key != "tensor_indices_or_sections"}
    return tx.node(torch.tensor_split, args, {**others, name: plain})


def _tensor_of_symbols(tx, data, args, kwargs, make=of_symbols):
    """torch.tensor([n, 2]) where n is a symbol; None: with the number of this run."""
    options = {name: value for name, value in kwargs.items() if name not in ("data", "obj")}
    if args or not options.keys() <= {"dtype", "device"}:
        return None
    dtype = options["dtype"].as_constant() if "dtype" in options else None
    return make(tx, data, dtype, options.get("device"))


def _tensor_of_tensor(tx, function, data, args, kwargs):
    """torch.tensor(t) is a copy without history; the other two give t itself where nothing has to
    change."""
    if function is not torch.tensor:
        kwargs = {name: value for name, value in kwargs.items() if name not in ("data", "obj")}
        return tx.node(function, [data, *args], kwargs)
    wanted = {name: kwargs[name] for name in ("dtype", "device") if name in kwargs}
    if args or set(kwargs) - {"data", "requires_grad", *wanted}:
        raise Break("arguments", "torch.tensor() of a tensor, with unusual arguments")
    if "requires_grad" in kwargs and kwargs["requires_grad"].as_constant():
        text = "torch.tensor(..., requires_grad=True) makes a leaf in a compiled frame"
        raise Break("module", text)
    detached = data.call_method(tx, "detach", [], {})
    return detached.call_method(tx, "to", [detached], {**wanted, "copy": ConstantVar(True)})


def contains(tx, variable, kinds) -> bool:
    """Is there a tensor (NumPy number...) in nested containers?"""
    if isinstance(variable, SequenceVar):
        return any(contains(tx, item, kinds) for item in variable.iterate(tx))
    if isinstance(variable, DictVar):
        return any(contains(tx, value, kinds) for _, value in variable.pairs(tx))
    if kinds is TensorVar:
        return type(variable) is TensorVar
    known = type(variable) is ConstantVar and type(variable.value) in kinds
    return known or type(variable) in kinds


@rule(at("overrides.has_torch_function_variadic"), at("overrides.has_torch_function_unary"))
def _any_overloads(tx, *values):
    """Torch's Python code asks whether an object decides what it means."""
    for value in values:
        value = value.realize(tx)
        if type(value) is not TensorVar and not value.is_constant():
            raise Break("tensor subclass", f"{value} as an argument of a torch function")
    return False


rule(at("overrides.has_torch_function"))(lambda tx, values: _any_overloads(tx, *values.iterate(tx)))


def dtype_of(x: Any) -> torch.dtype:
    if not isinstance(x, TensorVar):
        raise Break("argument", f"{x} where a tensor is expected")  # plain Python says so
    return x.fake.dtype


def _clear_cache(tx):
    call_state(tx.output, tx, torch.clear_autocast_cache, [])


rules(
    {
        tuple(map(at, ELSEWHERE.split())): lambda tx, *args, **kwargs: False,
        torch._C._get_tracing_state: lambda tx: None,
        at("jit.annotate"): lambda tx, kind, value: value,
        torch.is_tensor: lambda tx, value: issubclass(value.python_type(), torch.Tensor),
        torch.is_floating_point: lambda tx, x: dtype_of(x).is_floating_point,
        torch.is_complex: lambda tx, x: dtype_of(x).is_complex,
        torch.numel: lambda tx, x: x.call_method(tx, "numel", [], {}),
        torch.clear_autocast_cache: _clear_cache,
        # a label: the graph has its own.  # PyTorch: ignored too, with a warning
        torch.profiler.record_function: lambda tx, *_, **__: tx.call_class(
            contextlib.nullcontext, [], {}
        ),
        tuple(map(at, LOOPS.split())): refused(
            "torch", "a branch or loop of torch's", "torch compiles it by itself, outside"
        ),
        _get_value: _double,
        _stack_if_compiling: lambda tx, values: values,
        tuple(map(at, CHANGES_STATE.split())): refused(
            "torch", "a torch function that changes or reads state outside the graph"
        ),
        at("_C._cuda_jiterator_compile_and_launch_kernel"): refused(
            "torch", "a kernel that torch.cuda.jiterator compiles"
        ),
        torch.nn.Parameter: refused(
            "module", "making a Parameter in a compiled frame", "make parameters in __init__"
        ),
    }
)


METHOD = "_init_group"
CLASSES = [cls for cls in vars(torch.optim).values() if METHOD in getattr(cls, "__dict__", ())]


def sizes_of_state(optimizer: torch.optim.Optimizer) -> dict[Any, int]:
    """How many things are kept for each parameter."""
    return {parameter: len(kept) for parameter, kept in optimizer.state.items()}


def may_begin(tx: Frame, optimizer: Any, function: Callable) -> bool:
    """Is it all torch's, and nothing before it that plain Python would have done by now?"""
    kind = type(optimizer)
    if not issubclass(kind, torch.optim.Optimizer) or METHOD in vars(optimizer):
        return False
    own = inspect.unwrap(getattr(kind, METHOD, None) or begin) is function
    if not own or not kind.__module__.startswith("torch.optim."):
        return False
    output = tx.output
    return not (output.calls or written_objects(tx))


def begin(optimizer: torch.optim.Optimizer, function: Callable) -> bool:
    """Fill the state of all groups.  Has anything changed?"""
    before = sizes_of_state(optimizer)
    lists = len(inspect.signature(function).parameters) - 2  # what follows (self, group)
    try:
        for group in optimizer.param_groups:
            function(optimizer, group, *[[] for _ in range(lists)])
    except ours(Exception):  # plain Python comes there as well, and says what is wrong
        pass
    return sizes_of_state(optimizer) != before


def first_step(function: Callable) -> Callable[..., Variable]:
    """The rule of a class's `_init_group`."""

    def init_group(tx: Frame, self: Variable, /, *args: Variable, **kwargs: Variable) -> Variable:
        optimizer = getattr(self, "value", None)
        if may_begin(tx, optimizer, function) and begin(optimizer, function):
            raise Restart()
        return tx.inline(tx.output.wrap_pinned(function), [self, *args], kwargs)

    return init_group


for _cls in CLASSES:  # torch.compile, used before in this process, has wrapped them
    _function = inspect.unwrap(vars(_cls)[METHOD])
    rule(_function)(first_step(_function))
