"""The thread's state: read for real and guarded, written in the graph and while tracing.

    with torch.no_grad(): ...    torch.get_default_dtype()    with torch.autocast("cpu"): ...

In:   a call that asks for the state, or sets it.
Out:  the answer of this moment, with a guard unless every frame guards it on entry; a node that
      sets the state when the graph runs (after tracing `put_back` restores it).

A program that asks whether it is compiled is told so; torch's own code mostly is not.
Mirrors torch/_dynamo/variables/torch.py and ctx_manager.py.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..evaluate.operations import on_host
from ..frame.frame_hook import graph_break, is_compiling
from ..guards.originals import OPTIMIZERS, TORCH
from ..variables.base import Frame, OutputGraph, Variable
from ..variables.constant import ConstantVar
from ..variables.registry import NONE, refused, rule, rules
from ..variables.tensor import guard_outer_state, guard_state


def at(path: str) -> Any:
    """torch.a.b.c, or None where this torch has no such name."""
    value: Any = torch
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


READERS = """
    is_autocast_cpu_enabled get_autocast_gpu_dtype get_autocast_cpu_dtype
    is_autocast_cache_enabled is_deterministic_algorithms_warn_only_enabled
    is_anomaly_enabled get_num_threads backends.cuda.flash_sdp_enabled
    autograd.forward_ad._is_fwd_grad_enabled _C._functorch.maybe_current_level
    is_warn_always_enabled cuda.is_initialized _C._get_default_device
    distributed.is_initialized distributed.is_torchelastic_launched distributed.get_rank
    distributed.get_world_size cuda.current_device cuda.get_device_capability cuda.get_device_name
"""


# The same all through the process, or guarded on entry in every frame.
FIXED = """
    amp.autocast_mode.is_autocast_available _C._is_autocast_available cuda.is_available
    is_storage _C._get_privateuse1_backend_name
    backends.mps.is_available cuda.device_count can_cast cuda.is_bf16_supported
    _C._cuda_getDeviceCount _C._log_api_usage_once xpu.is_available
    cuda.get_arch_list
    promote_types is_grad_enabled is_inference_mode_enabled
    _C._is_any_autocast_enabled get_default_dtype are_deterministic_algorithms_enabled
    get_default_device _C._is_torch_function_mode_enabled
    utils._python_dispatch.is_in_torch_dispatch_mode _C._are_functorch_transforms_active
    distributed.is_available distributed.is_gloo_available distributed.is_mpi_available
    distributed.is_nccl_available distributed.is_ucc_available distributed.is_xccl_available
    backends.mkldnn.is_available backends.mkl.is_available backends.openmp.is_available
    backends.cudnn.is_available backends.cuda.is_built backends.mps.is_built
"""
SDP = "flash mem_efficient math cudnn overrideable".split()

READ_STATES = {
    torch.set_autocast_enabled: torch.is_autocast_enabled,
    torch.set_autocast_dtype: torch.get_autocast_dtype,
    at("_C._set_sdp_priority_order"): at("_C._get_sdp_priority_order"),
    **{at(f"_C._set_sdp_use_{name}"): at(f"_C._get_{name}_sdp_enabled") for name in SDP},
}
READ_STATES.pop(None, None)  # what this torch has not
# what a program may set for its thread: setter -> getter
STATES: dict[Callable, Callable] = {
    torch._C._set_grad_enabled: torch.is_grad_enabled,
    torch.set_autocast_cache_enabled: torch.is_autocast_cache_enabled,
    **READ_STATES,
}


def call_state(tx: Frame, setter: Any, values: Sequence[Any]) -> None:
    """A change of the thread's state: made now for the ops that follow, and a node of the graph,
    which does not count as one that computes something."""
    constants: list[Variable] = [ConstantVar(value) for value in values]
    tx.output.add_node(tx, "call_function", setter, constants, {}, None)
    tx.output.calls -= 1
    setter(*values)


@contextmanager
def put_back(output: OutputGraph) -> Iterator[None]:
    """Trace the frame in this block: afterwards the thread's state is as it was before, and
    `output.state.after` says what the replacement code must set."""
    changes = output.state
    try:
        yield
    finally:
        for (setter, key), value in changes.before.items():
            final = STATES[setter](*key)
            if final != value:
                changes.after[setter, key] = final
        set_all(changes.before)
        setters = [setter for setter, _ in changes.before]
        if changes.autocast_depth or torch.set_autocast_cache_enabled in setters:
            torch.clear_autocast_cache()  # of fake tensors


def set_all(values: dict[Any, Any]) -> None:
    for (setter, key), value in values.items():
        setter(*key, value)


def _fold(function: Callable, guarded: bool, tx: Frame, *args: Any, **kwargs: Variable) -> Variable:
    call = on_host(function, args, kwargs, "as_constant")
    result = tx.fold(call)
    if guarded:
        guard_outer_state(tx.output, call, result.as_constant())
    return result


def _write(setter: Callable, getter: Callable, tx: Frame, *args: Variable) -> Variable:
    """Now, for the ops that follow while tracing; as a node, for the run."""
    values = [value.as_constant() for value in args]
    key = tuple(values[:-1])
    tx.output.state.before.setdefault((setter, key), getter(*key))
    call_state(tx, setter, values)
    return NONE


def _read(setter: Callable, getter: Callable, tx: Frame, *args: Variable) -> Variable:
    """Guarded by itself, unless this frame has written it: `torch.autocast("cpu")` takes the
    dtype that is set at large."""
    key = tuple(value.as_constant() for value in args)
    guarded = key or setter is not torch.set_autocast_enabled
    found = getter(*key)
    if guarded and (setter, key) not in tx.output.state.before:
        guard_state(tx.output, functools.partial(getter, *key), found)
    return tx.output.wrap_result(found)


for _names, _guarded in ((FIXED, False), (READERS, True)):
    for _function in filter(callable, map(at, _names.split())):
        rule(_function)(functools.partial(_fold, _function, _guarded))
for _setter, _getter in STATES.items():
    rule(_setter)(functools.partial(_write, _setter, _getter))
for _setter, _getter in READ_STATES.items():
    rule(_getter)(functools.partial(_read, _setter, _getter))


def _nest(change: int, tx: Frame) -> Variable:
    """Count how deep autocast regions nest; the replacement code sets that depth.  (Only autocast's
    cache depends on it.)"""
    changes = tx.output.state
    changes.autocast_depth += change
    torch.autocast_increment_nesting()
    return ConstantVar(torch.autocast_decrement_nesting() + changes.autocast_depth)


rule(torch.autocast_increment_nesting)(functools.partial(_nest, 1))
rule(torch.autocast_decrement_nesting)(functools.partial(_nest, -1))


# ---- programs that ask whether they are compiled, and then go another way
QUESTIONS = ("compiler.is_compiling", "compiler.is_dynamo_compiling", "_utils.is_compiling")
# Files and folders of torch's that ask, and go two ways to the same values.
SAME_VALUES = (
    *("optim/", "nn/modules/module.py", "nn/parallel/", "nn/attention/", "_higher_order_ops/"),
    *("utils/checkpoint.py", "autograd/graph.py", "_utils.py", "fx/", "compiler/"),
    *("distributed/_functional_collectives.py", "distributed/device_mesh.py"),
)


def yes(tx: Frame) -> Variable:
    """The answer to `is_compiling()`.  Torch's own code is told that it is not compiled, as its two
    ways may give different values (padded rows of a TransformerEncoder) or errors; but for files
    where they give the same, and the other one cannot be traced."""
    asker = tx.code.co_filename
    if asker.startswith(TORCH) and not asker[len(TORCH) :].startswith(SAME_VALUES):
        return ConstantVar(False)
    capturable = tx.locals.get("capturable")  # of an optimizer, which then looks at devices
    if asker.startswith(OPTIMIZERS) and capturable is not None and capturable.truth(tx):
        return ConstantVar(False)
    return ConstantVar(True)


rules(
    {
        (is_compiling, *map(at, QUESTIONS)): yes,
        at("nn.modules.activation._is_make_fx_tracing"): lambda tx: ConstantVar(False),
        torch._C._InferenceMode: refused(
            "inference mode", "inference_mode() is entered", "enter it around the compiled function"
        ),
        graph_break: refused(
            "graph_break()", "minidynamo.graph_break() was called", "remove the call"
        ),
    }
)
