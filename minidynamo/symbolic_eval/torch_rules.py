"""What calling a torch function means: a graph node, a constant, a change of the thread's state, or
a graph break.

In:   `is_leaf(fn)`: does this function go into the graph whole?  `call_leaf`, `RULES`.   Out:
      variables.

    >>> is_leaf(torch.nn.functional.softmax), is_leaf(torch.nn.Linear.forward)
    (True, False)

Torch's Python code that is not a leaf (nn modules, distributions) is inlined like the user's.
Mirrors torch/_dynamo/trace_rules.py and variables/torch.py.
"""

import contextlib
import functools
import types

import torch
import torch.utils.checkpoint
from torch.optim.optimizer import _get_value, _stack_if_compiling

from .. import polyfills, runtime
from ..exceptions import Break
from ..originals import LEAF_MODULES, made_by_torch
from ..variables.base import Variable
from ..variables.constant import NUMPY, ConstantVar
from ..variables.containers import DictVar, ListVar, SequenceVar, TupleVar
from ..variables.functions import MethodVar
from ..variables.lookup import MISSING, lookup
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar
from .registry import NONE, refused, rule, rules, traced

REFUSED = (
    "torch._dynamo",
    "torch._inductor",
    "torch.jit",
    "torch.autograd",
    "torch.distributed",
    "torch.utils.checkpoint",
    "torch.fx",
    "torch._functorch",
    "torch.func",
    "torch.optim.lr_scheduler",
    "torch.serialization",
    "torch.export",
    "torch.utils.data",
    "torch._subclasses",
    "torch.cuda",
    "torch.profiler",
    "torch.library",
    "torch._tensor_str",
    "torch.random",
)
TRACED = (
    "torch.autograd.grad_mode",
    "torch.autograd.function.FunctionCtx",
    "torch.autograd.variable",
)
_LEAVES = {}


def is_leaf(fn):
    """Does `fn` become one node?"""
    known = _LEAVES.get(id(fn))
    if known is not fn and _decide(fn):
        known = _LEAVES[id(fn)] = fn  # torch's own, which live anyway
    return known is fn


def _decide(fn):
    if isinstance(fn, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    module = getattr(fn, "__module__", None)
    if isinstance(fn, types.FunctionType):
        if not made_by_torch(fn):
            return False  # the program's, which `functools.wraps` has given a name of torch's
        owner = {"torch": torch, "torch._tensor": torch.Tensor}.get(module)
        return (
            module in LEAF_MODULES or owner is not None and getattr(owner, fn.__name__, None) is fn
        )
    return isinstance(fn, types.BuiltinFunctionType) and (
        module in LEAF_MODULES or getattr(torch._C._VariableFunctions, fn.__name__, None) == fn
    )


def refuse(fn):
    """Torch code that must not be traced: break at the call."""
    if getattr(fn, "_minidynamo_disabled", False):
        raise Break("disabled", f"{fn.__qualname__} is disabled")
    module = fn.__module__ or ""
    name = f"{module}.{fn.__qualname__}"
    if getattr(fn, "_torchdynamo_disable", False) and not module.startswith("torch."):
        raise Break("disabled", f"{fn.__qualname__} is disabled by torch.compiler.disable")
    if name.startswith(REFUSED) and not name.startswith(TRACED):
        raise Break("torch", f"the call of {name}()")


def call_leaf(tx, fn, args, kwargs):
    if isinstance(fn, types.FunctionType) and tx.output.calls_replaced(fn, is_leaf):
        return tx.inline(tx.output.wrap_pinned(fn), args, kwargs)
    return tx.output.call_graph(tx, "call_function", fn, args, kwargs)


def _at(path):
    """torch.a.b.c, or None where this torch has no such name."""
    value = torch
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


# ---- one line each
def _double(tx, value):
    """A step count, as a float64 tensor: eager reads a Python float out of it."""
    return value.call_method(tx, "double", [], {}) if isinstance(value, TensorVar) else value


rules(
    {
        (
            _at("compiler.is_compiling"),
            _at("compiler.is_dynamo_compiling"),
            _at("_utils.is_compiling"),
        ): lambda tx: ConstantVar(True),
        tuple(
            map(
                _at,
                """compiler.is_exporting jit.is_scripting jit.is_tracing onnx.is_in_onnx_export _jit_internal.is_scripting
                      cuda.is_current_stream_capturing xpu.is_current_stream_capturing overrides.has_torch_function
                      overrides.has_torch_function_unary overrides.has_torch_function_variadic""".split(),
            )
        ): lambda tx, *args, **kwargs: ConstantVar(False),
        torch._C._get_tracing_state: lambda tx: NONE,
        _at("jit.annotate"): lambda tx, kind, value: value,
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
        _at("_higher_order_ops.associative_scan"): traced(polyfills.associative_scan),
        _get_value: _double,
        _stack_if_compiling: lambda tx, values: values,
        # PyTorch: a higher-order op, whose body the backward graph computes again
        torch.utils.checkpoint.checkpoint: refused(
            "checkpoint",
            "torch.utils.checkpoint runs its body as plain Python, so that the backward pass can repeat it",
            "leave it out: the compiled backward graph recomputes what is cheap",
        ),
        (
            torch.manual_seed,
            torch.seed,
            torch.get_rng_state,
            torch.set_rng_state,
            torch.initial_seed,
            torch.use_deterministic_algorithms,
            torch.set_num_threads,
            torch.save,
            torch.load,
            torch.from_numpy,
            _at("compile"),
            torch.set_default_device,
        ): refused("torch", "a torch function that changes or reads state outside the graph"),
        _at("_C._cuda_jiterator_compile_and_launch_kernel"): refused(
            "torch", "a kernel that torch.cuda.jiterator compiles"
        ),
        torch.nn.Parameter: refused(
            "module", "making a Parameter in a compiled frame", "make parameters in __init__"
        ),
    }
)


# ---- the thread's state: read for real and guarded, written in the graph and here
READERS = [
    "is_autocast_cpu_enabled",
    "get_autocast_gpu_dtype",
    "get_autocast_cpu_dtype",
    "is_autocast_cache_enabled",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_anomaly_enabled",
    "get_num_threads",
    "backends.cuda.flash_sdp_enabled",
    "autograd.forward_ad._is_fwd_grad_enabled",
    "_C._functorch.maybe_current_level",
    "is_warn_always_enabled",
    "cuda.is_initialized",
    "_C._get_default_device",
]
FIXED = [
    "amp.autocast_mode.is_autocast_available",
    "_C._is_autocast_available",
    "cuda.is_available",
    "_C._has_torch_function",
    "is_storage",
    "_C._get_privateuse1_backend_name",
    "backends.mps.is_available",
    "cuda.device_count",
    "can_cast",
    "cuda.is_bf16_supported",
    "_C._cuda_getDeviceCount",
    "_C._log_api_usage_once",
    "xpu.is_available",
    "amp.is_autocast_available",
    "promote_types",  # the same all through the process
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "_C._is_any_autocast_enabled",
    "get_default_dtype",
    "are_deterministic_algorithms_enabled",
    "get_default_device",
    "_C._is_torch_function_mode_enabled",
    "utils._python_dispatch.is_in_torch_dispatch_mode",
]  # guarded on entry, in every frame


def _fold(function, guarded):
    def read(tx, *args, **kwargs):
        call = functools.partial(
            function,
            *[a.as_constant() for a in args],
            **{k: v.as_constant() for k, v in kwargs.items()},
        )
        result = tx.fold_pinned(call)
        if guarded:
            tx.output.guard_state(call, result.as_constant())
        return result

    return read


for _names, _guarded in ((FIXED, False), (READERS, True)):
    for _name in _names:
        if callable(_at(_name)):
            rule(_at(_name))(_fold(_at(_name), _guarded))


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


STATES = {
    torch._C._set_grad_enabled: torch.is_grad_enabled,
    torch.set_default_dtype: torch.get_default_dtype,  # guarded on entry
    torch.set_autocast_cache_enabled: torch.is_autocast_cache_enabled,
}
READ_STATES = {
    torch.set_autocast_enabled: torch.is_autocast_enabled,
    torch.set_autocast_dtype: torch.get_autocast_dtype,
    **{
        _at(f"_C._set_{a}"): _at(f"_C._get_{b}")
        for a, b in (
            ("sdp_use_flash", "flash_sdp_enabled"),
            ("sdp_use_mem_efficient", "mem_efficient_sdp_enabled"),
            ("sdp_use_math", "math_sdp_enabled"),
            ("sdp_use_cudnn", "cudnn_sdp_enabled"),
            ("sdp_use_overrideable", "overrideable_sdp_enabled"),
            ("sdp_priority_order", "sdp_priority_order"),
        )
    },
}
READ_STATES = {
    setter: getter
    for setter, getter in READ_STATES.items()
    if setter is not None and getter is not None
}
STATES.update(READ_STATES)


def _state(setter, getter):
    def write(tx, *args):
        """Now, for the ops that follow while tracing; as a node, for the run.  `convert_frame`
        restores it after tracing."""
        values = [a.as_constant() for a in args]
        tx.output.state_before.setdefault((setter, tuple(values[:-1])), getter(*values[:-1]))
        tx.output.call_state(tx, setter, values)
        return NONE

    return write


def _reader(setter, getter):
    def read(tx, *args):
        """Guarded by itself, unless this frame has written it: `torch.autocast("cpu")` takes the
        dtype that is set at large."""
        key = tuple(a.as_constant() for a in args)
        if (key or setter is not torch.set_autocast_enabled) and (
            setter,
            key,
        ) not in tx.output.state_before:
            tx.output.guard(
                tx.output.tree.pinned(getter),
                ("STATE", key),
                f"{{0}}({', '.join(map(repr, key))}) == {{pin}}",
                getter(*key),
            )
        return tx.output.wrap_result(getter(*key))

    return read


rules({setter: _state(setter, getter) for setter, getter in STATES.items()})
rules({getter: _reader(setter, getter) for setter, getter in READ_STATES.items()})


def _nesting(change):
    def nest(tx):
        """How deep the regions nest matters to autocast's cache alone: counted here, made true by
        `reconstruct`."""
        tx.output.autocast_depth += change
        torch.autocast_increment_nesting()
        return ConstantVar(torch.autocast_decrement_nesting() + tx.output.autocast_depth)

    return nest


rule(torch.autocast_increment_nesting)(_nesting(1))
rule(torch.autocast_decrement_nesting)(_nesting(-1))


class ContextVar(Variable):
    """A context manager of C, entered and left by nodes of the graph: inference mode; a device that
    new tensors are made on.

    `state`: what else of the thread's state had been set when it was entered, for `reconstruct` to
    enter it in the same one behind a graph break.
    """

    __slots__ = ("make", "arg", "state")

    def getattr(self, tx, name):
        return MethodVar(self, name)

    def method___enter__(self, tx):
        output = tx.output
        output.state_before.setdefault((torch._C._set_grad_enabled, ()), torch.is_grad_enabled())
        self.state = {(setter, key): STATES[setter](*key) for setter, key in output.state_before}
        output.entered.append(self)
        output.call_state(tx, runtime.enter, [self.make.__name__.strip("_"), self.arg])
        return self

    def method___exit__(self, tx, *_):
        if tx.output.entered[-1:] != [self]:
            raise Break("context", f"{self} is left before one that was entered later")
        tx.output.entered.pop()
        tx.output.call_state(tx, runtime.leave, [])

    def reconstruct(self, cg):
        cg.call_object(self.make, ConstantVar(self.arg))

    def __repr__(self):
        return f"{self.make.__name__.strip('_')}({self.arg})"


def _inference_mode(tx, mode=ConstantVar(True)):
    if not mode.value and not torch.is_grad_enabled() and tx.output.generates_code:
        raise Break(
            "inference mode",
            "inference_mode(False) where no gradients are recorded",
            "use torch.enable_grad(), or leave the mode outside",
        )
    return ContextVar(torch._C._InferenceMode, mode.value, {})


rules({torch._C._InferenceMode: _inference_mode})


# ---- code that autograd must see whole
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


# ---- making tensors from Python values
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
    rule(_at(_name))(functools.partial(_tensor, _at(_name)))


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
