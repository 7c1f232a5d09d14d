"""Torch functions that are no plain nodes of the graph: torch.tensor, checks, foreach, hooks.

In:   the arguments of the call, as variables.
Out:  nodes of the graph, where torch's function reads Python numbers or asks for values; a break.

    torch.tensor([x.shape[0], 3])       # stack((full((), s0), full((), 3))): the size is a symbol
    torch._check(n > 0)                 # a guard
    y.register_hook(function)           # the frame runs as plain Python

Numbers of other forms (nested lists, with a dtype of their own) are those of this run, and guarded.
What torch.tensor makes of plain numbers is known while tracing: `.tolist()` and `bool(...)` give
Python's numbers back.  To ask that of a tensor of symbols is a graph break.
Mirrors torch/_dynamo/variables/torch.py.
# PyTorch: symbols stay in torch.tensor, and are unbacked where they are read out.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.optim.optimizer import _get_value, _stack_if_compiling

from miniinductor.sizes.symbols import is_contiguous

from ..errors import Break, SkipFrame
from ..variables.base import Frame, Named, Variable
from ..variables.constant import NUMPY, ConstantVar
from ..variables.dicts import DictVar, ListVar, SequenceVar, TupleVar
from ..variables.registry import NONE, refused, rule, rule_of_each, rules
from ..variables.symbolic import SymVar, pinned
from ..variables.tensor import TensorVar
from .torch_state import at, call_state

ELSEWHERE = """
    compiler.is_exporting fx._symbolic_trace.is_fx_tracing jit.is_scripting jit.is_tracing
    cuda.is_current_stream_capturing xpu.is_current_stream_capturing
"""
CHANGES_STATE = """
    manual_seed seed get_rng_state set_rng_state initial_seed use_deterministic_algorithms
    set_num_threads save load compile set_default_device
"""
LOOPS = "cond while_loop _higher_order_ops.scan _higher_order_ops.map"
HOOKS = (
    torch.Tensor.register_hook,
    torch.Tensor.register_post_accumulate_grad_hook,
    torch.Tensor.retain_grad,
)


# ---- torch.tensor
MOST = 32  # symbols and numbers in one tensor; each is a node


@rule_of_each(torch.tensor, torch.as_tensor, torch.asarray)
def _tensor(function: Callable, tx: Frame, *args: Variable, **kwargs: Variable) -> Variable:
    """torch.tensor, torch.as_tensor, torch.asarray."""
    data: Any = args[0] if args else kwargs["data" if "data" in kwargs else "obj"]
    if isinstance(data, TensorVar):
        return of_tensor(tx, function, data, args[1:], kwargs)
    if contains(tx, data, NUMPY):
        raise Break("argument", "a tensor of NumPy's numbers, which keeps their types")
    if contains(tx, data, {TensorVar}):
        text = "torch.tensor() of tensors reads their values"
        raise Break("data-dependent", text, "use torch.stack")
    made = None if args[1:] else of_symbols(tx, data, kwargs)
    if made is not None:
        return made
    if isinstance(data, (ListVar, TupleVar)):
        args = (tx.output.wrap_result(tx.output.to_fake(data)), *args[1:])
    if "copy" in kwargs or "obj" in kwargs:
        raise Break("arguments", "torch.asarray() with arguments that torch.tensor() does not have")
    return tx.node(torch.tensor, args, kwargs)


def of_tensor(tx: Frame, function: Callable, data: Variable, args: Any, kwargs: Named) -> Variable:
    """torch.tensor(t) is a copy without history; the other two give t itself where nothing has to
    change."""
    options = {name: value for name, value in kwargs.items() if name not in ("data", "obj")}
    if function is not torch.tensor:
        return tx.node(function, [data, *args], options)
    if args or not options.keys() <= {"dtype", "device"}:
        raise Break("arguments", "torch.tensor() of a tensor, with unusual arguments")
    detached = data.call_method(tx, "detach", [], {})
    return detached.call_method(tx, "to", [detached], {**options, "copy": ConstantVar(True)})


def of_symbols(tx: Frame, data: Any, kwargs: Named) -> Variable | None:
    """torch.tensor(n), torch.tensor([n, 2]), where n is a symbol; None: with the number of this
    run."""
    is_list = isinstance(data, (ListVar, TupleVar))
    numbers = data.items if is_list else [data]
    if len(numbers) > MOST or not any(type(number) is SymVar for number in numbers):
        return None
    kinds = {number.python_type() for number in numbers}
    if kinds not in ({int}, {float}) or not kwargs.keys() <= {"data", "dtype", "device"}:
        return None
    dtype = torch.int64 if kinds == {int} else torch.get_default_dtype()
    options = {"dtype": ConstantVar(dtype), **kwargs}
    options.pop("data", None)
    if options["dtype"].as_constant() is not dtype:
        return None
    parts = [tx.node(torch.full, [TupleVar([]), number], options) for number in numbers]
    return tx.node(torch.stack, [ListVar(parts)]) if is_list else parts[0]


def contains(tx: Frame, variable: Variable, kinds: set) -> bool:
    """Does a tensor (a number of NumPy's) lie in nested containers?"""
    if isinstance(variable, SequenceVar):
        return any(contains(tx, item, kinds) for item in variable.iterate(tx))
    if isinstance(variable, DictVar):
        return any(contains(tx, value, kinds) for _, value in variable.pairs(tx))
    return type(variable) in kinds or (
        type(variable) is ConstantVar and type(variable.value) in kinds
    )


# ---- functions that go into the graph, with a change or a condition
@rule_of_each(torch.nn.functional.pad, torch.constant_pad_nd)
def _pad(
    function: Callable, tx: Frame, input: Any, pad: Variable, *args: Any, **kwargs: Any
) -> Any:
    """Pinned amounts for a tensor that is not contiguous: with all amounts 0 eager keeps its
    strides, which torch's rule for symbolic amounts does not know (found by `make fuzz-shapes`)."""
    is_strided = isinstance(input, TensorVar) and input.fake.layout is torch.strided
    if is_strided and not is_contiguous(input.fake):
        pad = TupleVar([pinned(amount) for amount in pad.iterate(tx)])
    return tx.call_leaf(function, [input, pad, *args], kwargs)


@rule_of_each(torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh, torch._VF.rnn_relu)
def _recurrent(function: Callable, tx: Frame, *args: Any, **kwargs: Variable) -> Variable:
    """lstm, gru and rnn.  With gradients on a GPU the graph breaks, and cuDNN's call runs as it is:
    torch's rule for gradients takes one time step after another, hundreds of kernels where cuDNN
    has one.  Without gradients the call is one node (miniinductor/lowering/decompositions.py).
    PyTorch: breaks the graph at every recurrent module."""
    values = [v for a in args for v in (a.iterate(tx) if isinstance(a, SequenceVar) else [a])]
    fakes = [value.fake for value in values if isinstance(value, TensorVar)]
    learns = torch.is_grad_enabled() and any(fake.requires_grad for fake in fakes)
    if learns and any(map(on_gpu, fakes)):
        text = f"{function.__name__} of cuDNN, with gradients"
        raise Break("recurrent", text, "nothing is lost but one graph")
    result = tx.call_leaf(function, args, kwargs)
    fake = next(result.iterate(tx)).fake
    packed = isinstance(args[3], SequenceVar)
    if on_gpu(fake) and not packed and args[-1].as_constant():
        # batch first: cuDNN's result lies as time, batch, features
        batch, time, features = fake.shape
        fake.as_strided_(fake.shape, (features, batch * features, 1))
    return result


def on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


@rule_of_each(torch._foreach_addcdiv_, torch._foreach_addcmul_)
def _foreach(function: Callable, tx: Frame, *args: Any, **kwargs: Variable) -> Variable:
    """torch._foreach_addcdiv_(params, a, b, values), where the values follow from step counts or
    learning rates: tensors, not numbers."""
    values = args[3] if len(args) > 3 else None
    if not isinstance(values, SequenceVar) or not contains(tx, values, {TensorVar, SymVar}):
        return tx.call_leaf(function, args, kwargs)
    method = function.__name__.removeprefix("_foreach_")
    for self, a, b, value in zip(*[arg.iterate(tx) for arg in args]):
        self.call_method(tx, method, [a, b], {"value": value})
    return NONE


def _double(tx: Frame, value: Variable) -> Variable:
    """A step count, as a float64 tensor: eager reads a Python float out of it."""
    return value.call_method(tx, "double", [], {}) if isinstance(value, TensorVar) else value


# ---- checks
@rule(torch._check, torch._check_is_size)
def _check(tx: Frame, condition: Any, *_: Variable, **__: Variable) -> None:
    """torch._check: a condition on symbolic sizes becomes a guard."""
    if type(condition) is SymVar:
        value = condition.value if condition.python_type() is bool else condition.value >= 0
        condition = ConstantVar(bool(value))
    if type(condition) is not ConstantVar or condition.value is not True:
        raise Break("torch", "torch._check() of something false, or of a tensor")


@rule(torch._assert)
def _assert(tx: Frame, condition: Variable, message: Variable) -> None:
    """The condition is a guard; nothing is asked of a message that nobody sees."""
    if type(condition) not in (SymVar, ConstantVar) or not condition.truth(tx):
        tx.call_leaf(torch._assert, [condition, message], {})


@rule(at("overrides.has_torch_function_variadic"), at("overrides.has_torch_function_unary"))
def _any_overloads(tx: Frame, *values: Variable) -> bool:
    """Torch's Python code asks whether an object decides what it means."""
    for value in values:
        value = value.realize(tx)
        if type(value) is not TensorVar and not value.is_constant():
            raise Break("tensor subclass", f"{value} as an argument of a torch function")
    return False


def dtype_of(x: Any) -> torch.dtype:
    if not isinstance(x, TensorVar):
        raise Break("argument", f"{x} where a tensor is expected")  # plain Python says so
    return x.fake.dtype


# ---- what no graph holds
@rule(*HOOKS)
def _hook(tx: Frame, *_: Variable) -> NoReturn:
    """Gradients inside of a graph that was captured before pass the hook by: no graph at all."""
    raise SkipFrame("a hook on the gradient of a tensor")


rules(
    {
        at("overrides.has_torch_function"): lambda tx, values: _any_overloads(
            tx, *values.iterate(tx)
        ),
        tuple(map(at, ELSEWHERE.split())): lambda tx, *args, **kwargs: False,
        torch._C._get_tracing_state: lambda tx: None,
        at("jit.annotate"): lambda tx, kind, value: value,
        torch.is_tensor: lambda tx, value: issubclass(value.python_type(), torch.Tensor),
        torch.is_floating_point: lambda tx, x: dtype_of(x).is_floating_point,
        torch.is_complex: lambda tx, x: dtype_of(x).is_complex,
        torch.numel: lambda tx, x: x.call_method(tx, "numel", [], {}),
        torch.clear_autocast_cache: lambda tx: call_state(tx, torch.clear_autocast_cache, []),
        # a label: the graph has its own.  # PyTorch: ignored too, with a warning
        torch.profiler.record_function: lambda tx, *_, **__: tx.call_class(
            contextlib.nullcontext, [], {}
        ),
        _get_value: _double,
        _stack_if_compiling: lambda tx, values: values,
        at("_shape_as_tensor"): refused("op", "the sizes of a tensor, as a tensor"),
        tuple(map(at, LOOPS.split())): refused(
            "torch", "a branch or loop of torch's", "torch compiles it by itself, outside"
        ),
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
