"""Torch functions that are no plain nodes: torch.tensor, checks, foreach, autograd functions.

torch.tensor([1, 2])        torch._check(n > 0)        MyFunction.apply(x)
"""

import contextlib
import functools

import torch
import torch.utils.checkpoint
from torch.optim.optimizer import _get_value, _stack_if_compiling

from .. import polyfills, runtime
from ..exceptions import Break
from ..symbolic_eval.registry import NONE, refused, rule, rules, traced
from ..symbolic_eval.torch_rules import at, call_leaf
from ..variables.constant import NUMPY, ConstantVar
from ..variables.containers import DictVar, ListVar, SequenceVar, TupleVar
from ..variables.lookup import MISSING, lookup
from ..variables.more.floats import FloatVar
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar

CHANGES_STATE = """
    manual_seed seed get_rng_state set_rng_state initial_seed use_deterministic_algorithms
    set_num_threads save load from_numpy compile set_default_device
"""


def _double(tx, value):
    """A step count, as a float64 tensor: eager reads a Python float out of it."""
    return value.call_method(tx, "double", [], {}) if isinstance(value, TensorVar) else value


def _pad(function, tx, *args, **kwargs):
    """Where nothing is added eager keeps the strides, which torch's rule for symbolic amounts does
    not ask about: found by `make fuzz-shapes`."""
    amounts = list((args[1] if len(args) > 1 else kwargs["pad"]).iterate(tx))
    if any(type(n) is SymVar for n in amounts) and not any(
        tx.compare(">", n, ConstantVar(0)).truth(tx) for n in amounts
    ):
        amounts = TupleVar([n.constant() if type(n) is SymVar else n for n in amounts])
        args, kwargs = (
            ([args[0], amounts, *args[2:]], kwargs)
            if len(args) > 1
            else (args, {**kwargs, "pad": amounts})
        )
    return call_leaf(tx, function, args, kwargs)


for _function in (torch.nn.functional.pad, torch.constant_pad_nd):
    rule(_function)(functools.partial(_pad, _function))


@rule(torch.autograd.Function.apply.__func__)
def _autograd_function(tx, *args, **kwargs):
    """The user's forward and backward are one node: run with fake tensors now, traced again by a
    backend that looks inside."""
    cls = args[0].as_constant()
    for name in ("forward", "backward", "setup_context"):
        owner, found = lookup(cls, name)
        if found is not MISSING and owner is not torch.autograd.Function:
            tx.output.guard(
                tx.output.tree.pinned(owner).child("class_item", name), "ID", "{0} is {pin}", found
            )
            if tx.output.generates_code and hasattr(
                function := getattr(found, "__func__", found), "__code__"
            ):
                tx.output.guard_globals(function)

    def apply(*values, **named):
        return cls.apply(*values, **named)

    apply.__name__, apply.__module__ = f"{cls.__name__}_apply", cls.__module__
    return tx.output.call_graph(tx, "call_function", apply, args[1:], kwargs)


def _foreach(foreach, each):
    """torch._foreach_addcdiv_(params, a, b, values), where the values follow from step counts or
    learning rates: tensors, not numbers."""

    def handle(tx, *args, **kwargs):
        changing = kwargs.get("value")
        if isinstance(changing, FloatVar):
            args, kwargs = (
                [*args, ListVar([changing.beside(tx, args)] * len(list(args[0].iterate(tx))))],
                {},
            )
        if (
            len(args) < 4
            or not isinstance(args[3], SequenceVar)
            or not contains(tx, args[3], TensorVar)
        ):
            return call_leaf(tx, foreach, args, kwargs)
        for self, a, b, value in zip(*[arg.iterate(tx) for arg in args]):
            self.call_method(tx, each, [a, b], {"value": value})
        return NONE

    return handle


rule(torch._foreach_addcdiv_)(_foreach(torch._foreach_addcdiv_, "addcdiv_"))


rule(torch._foreach_addcmul_)(_foreach(torch._foreach_addcmul_, "addcmul_"))


@rule(torch._check, torch._check_is_size)
def _check(tx, *args, **kwargs):
    """What the program promises of a size that only the run knows is checked there, and a fact from
    here on."""
    if args and type(args[0]) is SymVar:
        value = args[0].value if args[0].python_type() is bool else args[0].value >= 0
        if (
            isinstance(value, torch.SymBool)
            and not value.node.has_hint()
            and tx.output.shape_env.prove(value.node.expr) is None
        ):
            tx.output.call_graph(tx, "call_function", runtime.check_size, [SymVar(value)], {})
            tx.output.shape_env.learn(value.node.expr)
            return NONE
        args = [ConstantVar(bool(value)), *args[1:]]
    if args and type(args[0]) is ConstantVar and args[0].value in (True, False) and args[0].value:
        return NONE
    raise Break("torch", "torch._check() of something false, or of a tensor")


@rule(torch._assert)
def _assert(tx, *args, **kwargs):
    """The condition is a guard; nothing is asked of a message that nobody sees."""
    if (
        len(args) == 2
        and not kwargs
        and type(args[0]) in (SymVar, ConstantVar)
        and args[0].truth(tx)
    ):
        return NONE
    return call_leaf(tx, torch._assert, args, kwargs)


@rule(torch._is_all_true)
def _is_all_true(tx, *args, **kwargs):
    """torch.distributions checks arguments: an assertion in the graph (the backend "eager" runs
    it), and where it fails, the frame runs as plain Python, which says what is wrong.  # PyTorch:
    the checks are switched off."""
    result = call_leaf(tx, torch._is_all_true, args, kwargs)
    if (
        tx.globals.values.get("__name__", "").startswith("torch.distributions.")
        and result.fake.is_cpu
        and not tx.output.generates_code
    ):
        tx.output.call_graph(tx, "call_function", torch._assert_async, [result], {})
        return ConstantVar(True)
    return result


def _tensor(function, tx, *args, **kwargs):
    data = args[0] if args else kwargs["data" if "data" in kwargs else "obj"]
    if isinstance(data, TensorVar):
        return _tensor_of_tensor(tx, function, data, args[1:], kwargs)
    if contains(tx, data, NUMPY):
        raise Break("argument", "a tensor of NumPy's numbers, which keeps their types")
    if contains(tx, data, TensorVar) and not isinstance(data, TensorVar):
        raise Break(
            "data-dependent", "torch.tensor() of tensors reads their values", "use torch.stack"
        )
    if isinstance(data, (ListVar, TupleVar)):
        args = [tx.output.wrap_result(tx.output.to_fake(data)), *args[1:]]
    if "copy" in kwargs or "obj" in kwargs:
        raise Break("arguments", "torch.asarray() with arguments that torch.tensor() does not have")
    return tx.output.call_graph(tx, "call_function", torch.tensor, args, kwargs)


for _name in ("tensor", "as_tensor", "asarray"):
    rule(at(_name))(functools.partial(_tensor, at(_name)))


def _tensor_of_tensor(tx, function, data, args, kwargs):
    """torch.tensor(t) is a copy without history; the other two give t itself where nothing has to
    change."""
    if function is not torch.tensor:
        kwargs = {name: value for name, value in kwargs.items() if name not in ("data", "obj")}
        return tx.output.call_graph(tx, "call_function", function, [data, *args], kwargs)
    wanted = {name: kwargs[name] for name in ("dtype", "device") if name in kwargs}
    if args or set(kwargs) - {"data", "requires_grad", *wanted}:
        raise Break("arguments", "torch.tensor() of a tensor, with unusual arguments")
    if "requires_grad" in kwargs and kwargs["requires_grad"].as_constant():
        raise Break(
            "module", "torch.tensor(..., requires_grad=True) makes a leaf in a compiled frame"
        )
    detached = data.call_method(tx, "detach", [], {})
    return detached.call_method(tx, "to", [detached], {**wanted, "copy": ConstantVar(True)})


def contains(tx, variable, kinds):
    """Is there a tensor (NumPy number...) in nested containers?"""
    if isinstance(variable, SequenceVar):
        return any(contains(tx, item, kinds) for item in variable.iterate(tx))
    if isinstance(variable, DictVar):
        return any(contains(tx, value, kinds) for _, value in variable.pairs(tx))
    return (
        type(variable) is TensorVar
        if kinds is TensorVar
        else type(variable) is ConstantVar and type(variable.value) in kinds
    )


rules(
    {
        at("jit.annotate"): lambda tx, kind, value: value,
        torch.is_tensor: lambda tx, value: ConstantVar(isinstance(value, TensorVar)),
        torch.is_floating_point: lambda tx, x: ConstantVar(x.fake.dtype.is_floating_point),
        torch.is_complex: lambda tx, x: ConstantVar(x.fake.dtype.is_complex),
        torch.numel: lambda tx, x: x.call_method(tx, "numel", [], {}),
        torch.clear_autocast_cache: lambda tx: (
            tx.output.call_state(tx, torch.clear_autocast_cache, []) and NONE
        ),
        # a label: the graph has its own.  # PyTorch: ignored too, with a warning
        torch.profiler.record_function: lambda tx, *args, **kwargs: tx.call_class(
            contextlib.nullcontext, [], {}
        ),
        at("_higher_order_ops.associative_scan"): traced(polyfills.associative_scan),
        _get_value: _double,
        _stack_if_compiling: lambda tx, values: values,
        # PyTorch: a higher-order op, whose body the backward graph computes again
        torch.utils.checkpoint.checkpoint: refused(
            "checkpoint",
            "torch.utils.checkpoint runs its body as plain Python, so that the backward pass can "
            "repeat it",
            "leave it out: the compiled backward graph recomputes what is cheap",
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
