"""One frame in, one cache entry out: the callback of the frame hook.

In:   the function, its code object and its bound parameters, from the hook, before anything ran.
Out:  None (run it as it is) or a `CacheEntry`; every decision lands in `records`.

    >>> callback = FrameCompiler(backend="eager")
    >>> compiled = frame_hook.enabled(fn, callback)
    >>> skip_reason(json.dumps.__code__)        # why frames of this code are left alone, or None
    'the standard library'

This file decides for all the frames of one `minidynamo.compile(...)` which are left alone, and how
many entries a code object may have.  A call that fits no entry runs as plain Python once there are
`config.recompile_limit` entries, or several of which none has answered a second call.
`conversion.py` takes one frame to its entry.  If the compiler itself fails, the frame runs eagerly
and the failure is recorded.
Mirrors torch/_dynamo/convert_frame.py, trace_rules.py and cache_size.py.
"""

import builtins
import contextlib
import inspect
import logging
import os
import sys
import sysconfig
import threading
import types
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import _symbolic_trace
from torch.utils._device import DeviceContext

import miniinductor
from miniinductor.autograd.fake_mode import is_unusual
from miniinductor.errors import ThreadState, faults, ours
from miniinductor.options import Current

from .. import backends, config, functions, records  # noqa: F401  functions: what calls mean
from ..errors import BackendError, SkipFrame, Unsupported
from ..frame import frame_hook
from ..guards.originals import BUILTINS, NN_MODULE, OPTIMIZERS, OURS, TORCH
from ..rebuild.resume import GENERATOR_LIKE, function_name, is_resume_code
from ..records import FrameRecord, debug
from ..shapes.dynamic import SizePolicy
from ..variables.registry import RULES
from .conversion import Conversion
from .entries import (
    DEAD,
    WORTH,
    CacheEntry,
    entries_before,
    forget_entries,
    owner_of,
    run_plain,
    watch,
)

MINIINDUCTOR = os.path.dirname(miniinductor.__file__) + os.sep
# folders of torch's files, and the methods in them that are compiled
COMPILED_TORCH = {os.path.join(TORCH, "nn", "modules") + os.sep: "forward", OPTIMIZERS: "step"}
# What these files of torch's call runs as plain Python, too: the backward pass (hooks, bodies of
# checkpoints, which must run as they did in the forward pass), vmap, grad, torch.compile...
UNHOOKED = tuple(
    os.path.join(TORCH, *path.split("/"))
    for path in "autograd/__init__.py autograd/graph.py utils/checkpoint.py _functorch/ _dynamo/ "
    "_inductor/ jit/_trace.py".split()
)
STANDARD, SITE = [
    tuple({sysconfig.get_path(name) + os.sep for name in names})
    for names in (("stdlib", "platstdlib"), ("purelib", "platlib"))
]
NUMPY = os.path.join("site-packages", "numpy", "")


def replaced_needed() -> str:
    """The name of a function that our own code relies on and the program has replaced (a builtin
    with a rule, `torch.nn.Module.__getattr__`); "" if there is none."""
    if vars(torch.nn.Module).get("__getattr__") is not NN_MODULE["__getattr__"]:
        return "torch.nn.Module.__getattr__"
    for name, found in vars(builtins).items():
        if (was := BUILTINS.get(name, found)) is not found and was in RULES:
            return f"builtins.{name}"
    return ""


def skip_reason(code: types.CodeType) -> str | None:
    """Why frames of this code are left alone, or None."""
    file = code.co_filename
    if file.startswith(OURS):
        return "minidynamo's own code"
    if file.startswith(MINIINDUCTOR):  # a compiled graph's functions, called by autograd
        return "miniinductor's own code"
    if file.startswith(TORCH):
        return None if is_compiled_torch(code) else "torch's own code"
    if NUMPY in file:
        return "NumPy's own code"
    if file.startswith("<") and code.co_name == "<module>" or file.startswith("<frozen"):
        return "not a function"
    if file == "<string>" and code.co_varnames[:1] == ("_cls",):
        return "the __new__ of a named tuple"
    if file.startswith(STANDARD) and not file.startswith(SITE):
        return "the standard library"
    if code.co_flags & GENERATOR_LIKE or ".0" in code.co_varnames:
        # `.0` is the iterator that the code of a comprehension is given: it was made before
        return "a generator, coroutine or comprehension"
    return None


def is_compiled_torch(code: types.CodeType) -> bool:
    """Is this code the `forward` of one of torch's modules, the `step` of an optimizer, or a resume
    function of one?"""
    name, folders = function_name(code), COMPILED_TORCH.items()
    return any(code.co_filename.startswith(folder) and name == method for folder, method in folders)


def make_state(optimizer: Any) -> None:
    """Before `step` without a closure is traced: what its first call would make, so that one entry
    answers the first call and those that follow.  PyTorch: the same (`OptimizerVariable`)."""
    init: Any = getattr(type(optimizer), "_init_group", None)
    init = inspect.unwrap(init)  # torch.compile wraps it
    if not isinstance(init, types.FunctionType) or not init.__code__.co_filename.startswith(
        OPTIMIZERS
    ):
        return
    with contextlib.suppress(Exception):  # which the step raises, too
        for group in optimizer.param_groups:
            init(optimizer, group, *([] for _ in range(init.__code__.co_argcount - 2)))


LOCK = threading.RLock()
# A process is forked when no thread compiles: the child has only the thread that forked it, and
# would wait for ever for a lock that another one held.
os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)
COMPILING = Current(False)
# What fake tensors would log while a frame is traced is in the reason of the graph break.
logging.getLogger("torch._subclasses.fake_tensor").addFilter(lambda record: not COMPILING.value)
PATIENCE = 4  # at least so many entries are tried, though none has answered a second call
FRESH = 2  # after so many entries whose module died, what modules hold is taken for input
# (backend, options) -> compiler.  Only what it compiled keeps it alive, for a backend of the user's
# may hold a model.
COMPILERS: "weakref.WeakValueDictionary[Any, FrameCompiler]" = weakref.WeakValueDictionary()


def identity(backend: object) -> Any:
    """A key by which two backends that are alive can be told apart.  It is no `==`: two callables
    may say that they are equal, and compile in different ways."""
    if isinstance(backend, str):
        return backend
    if isinstance(backend, types.MethodType):  # `obj.method` is a new object each time
        return id(backend.__self__), id(backend.__func__)
    return id(backend)


class FrameCompiler:
    """The callback that one `minidynamo.compile(...)` installs."""

    def __init__(
        self,
        backend: str | backends.Backend = "inductor",
        fullgraph: bool = False,
        dynamic: bool | None = None,
        mode: str | None = None,
    ) -> None:
        self.backend_name, self.backend = backends.lookup_backend(backend)
        self.registered = isinstance(backend, str)
        self.key: Any = id(self)  # the same for equal options, see `of`
        self.fullgraph = fullgraph
        # torch's own compilers know no symbols of ours
        self.dynamic = False if backends.is_torchs(self.backend) else dynamic
        self.mode = mode
        # (a callable of the user's need not take a mode)
        self.options = {"mode": mode} if self.registered and mode is not None else {}
        # id -> code object of a function that was given to `compile` itself
        self.compiled_by_name: Any = weakref.WeakValueDictionary()

    @classmethod
    def of(cls, backend: Any, **options: Any) -> "FrameCompiler":
        """The compiler for these options, the same one each time: its entries are shared."""
        key = (identity(backend), *sorted(options.items()))
        compiler = COMPILERS.get(key)
        if compiler is None:
            compiler = COMPILERS[key] = cls(backend, **options)
            compiler.key = key
        return compiler

    def __call__(self, function: Any, code: types.CodeType, args: Sequence[Any]) -> Any:
        if code.co_filename.startswith(UNHOOKED):
            frame_hook.set_cache(code, ...)  # with all that it calls
            return None
        if skip_reason(code) is not None:
            frame_hook.set_cache(code, None)
            return None
        if COMPILING.value:  # a frame of the compiler's own work
            return None
        # a dispatch mode, vmap or a function mode would see what the compiler does, and the kernels
        if is_unusual() or in_function_mode():
            return None
        entries = entries_before(code, self, owner_of(args))
        # (what the user was told once: this code gets no more entries)
        limit = id(self), id(code), self.limit_reached(code, entries)
        if limit in records.TOLD and not self.fullgraph:
            self.note_miss(code, entries)
            return None
        with LOCK:
            try:
                return CompilingState().around(self.convert, function, code, args, entries)
            except (Unsupported, BackendError) as error:
                # what the user is told is about their lines, not about ours
                raise error.with_traceback(None)

    def note_miss(self, code: types.CodeType, entries: list[CacheEntry]) -> None:
        """No entry has answered this call, and there will be no other.  If none ever does, looking
        through them costs more than it is worth."""
        for entry in entries[-1:]:
            entry.record.misses += 1
            is_only = entry.owner is None and len(entries) == len(frame_hook.get_cache(code))
            is_used = any(e.record.hits for e in entries)
            if is_only and not is_used and entry.record.misses >= WORTH:
                run_plain(code)

    def limit_reached(self, code: types.CodeType, entries: list[CacheEntry]) -> str:
        """Why this code gets no further entry; "" if it may get one."""
        limit, dead = config.recompile_limit, DEAD.get((self.key, id(code)), [])
        answered = [*dead, *(entry.record.hits for entry in entries)]
        text = f"was compiled {len(answered)} times"
        if len(entries) >= limit:
            return f"{text} (config.recompile_limit)"
        if self.fullgraph or any(answered) or not answered:
            return ""
        is_enough = len(answered) >= max(PATIENCE, limit // 2) or self.is_within_given_up()
        return f"{text}, each for a single call" if is_enough else ""

    def is_within_given_up(self) -> bool:
        """Is a frame on the stack that was given up?  It would have inlined this one, and had its
        tries."""
        frame: Any = sys._getframe()
        while frame is not None and (id(self), id(frame.f_code)) not in records.TOLD:
            frame = frame.f_back
        return frame is not None

    def convert(
        self, function: Any, code: types.CodeType, args: Sequence[Any], before: list[CacheEntry]
    ) -> CacheEntry | None:
        name = getattr(function, "__qualname__", code.co_name)
        if is_resume_code(code):
            name = code.co_name
        record = FrameRecord(weakref.ref(code), name, backend=self.backend_name)
        fresh = len(DEAD.get((self.key, id(code)), ())) >= FRESH
        policy = SizePolicy(self.dynamic, [entry.record.sizes for entry in before], fresh)
        conversion = Conversion(self, function, code, args, record, policy)
        if not self.may_recompile(before, conversion):
            return None
        records.count("frames", code.co_name)
        try:
            if replaced := replaced_needed():
                raise SkipFrame(f"{replaced} is the program's own")
            if code.co_filename.startswith(OPTIMIZERS) and args[1:] == (None,):
                make_state(args[0])
            entry = conversion.run()
        except (Unsupported, BackendError):
            raise
        except ours(SkipFrame, RecursionError) as skipped:  # (not a signal's)
            # RecursionError: the program has a container that contains itself
            self.skip(conversion, str(skipped), skipped)
            return None
        except faults() as error:
            if config.raise_internal_errors:
                raise
            self.skip(conversion, f"the compiler failed: {type(error).__name__}: {error}", error)
            return None
        finally:
            for output in conversion.attempts:
                output.let_go()
        if entry is None:
            self.skip(conversion, "no tensor operation to compile")
            return None
        if config.raise_internal_errors and not entry.check(function, *args):
            failed = entry.record.guard_function.first_failure(function, *args)
            raise AssertionError(f"a guard refuses the call that it was made for: {failed}")
        records.remember(record)
        watch(code, entry, conversion.attempts[-1].modules)
        records.show(entry)
        return entry

    def may_recompile(self, before: list[CacheEntry], conversion: Conversion) -> bool:
        """Record why the entries `before` did not fit, and say whether there may be one more.  (If
        not, this call runs as plain Python; the entries stay, for calls that they fit.)"""
        record, code = conversion.record, conversion.code
        reason = self.limit_reached(code, before)
        if before:
            failed = records.judge_entries(record, before, conversion.function, conversion.args)
            known = [source for entry in before for source in entry.record.input_sources]
            conversion.policy.note_replaced(known, failed)
            if len(before) == 1 and all(guard.kind in ("SHAPE", "STRIDE") for guard in failed):
                reason = ""  # they become symbols
        if reason:
            if self.is_within_given_up() and owner_of(conversion.args) is None:
                frame_hook.set_cache(code, ...)  # what it calls is not tried in its turn
            records.give_up(record, reason, self.fullgraph, (id(self), id(code), reason))
            return False
        if before:
            told = f"{code.co_name}: {record.recompile_reason}"
            records.count("recompiles", told)
            debug(1, f"recompiling {told}{record.advice}")
        return True

    def skip(self, conversion: Conversion, reason: str, error: Exception | None = None) -> None:
        """Run frames of this code as plain Python from now on, and warn of `error`, if something
        was raised; under fullgraph=True: Unsupported."""
        code, record = conversion.code, conversion.record
        record.skipped = reason
        records.count("skipped", f"{code.co_name}: {reason}")
        records.remember(record)
        debug(1, f"skipped {code.co_name}: {reason}")
        if error is not None:
            records.warn_of_skip(conversion, error)
            if self.fullgraph:
                place = records.user_line(conversion)
                raise Unsupported(
                    f"{record.function} is not captured at all: {reason} (at {place})"
                )
        run_plain(code)


def in_function_mode() -> bool:
    """Does a TorchFunctionMode, or `torch.fx.symbolic_trace`, watch this thread's operations?  (A
    default device is a mode of torch's own, which is guarded.)"""
    modes = map(torch._C._get_function_stack_at, range(torch._C._len_torch_function_stack()))
    return _symbolic_trace._is_fx_tracing_flag or any(type(m) is not DeviceContext for m in modes)


class CompilingState(ThreadState):
    """What compiling a frame changes for this thread, see miniinductor/errors.py: `around` calls
    `begin`, the work, and `put_back`, whatever is raised."""

    def begin(self) -> None:
        COMPILING.value = True
        super().begin()

    def put_back(self) -> None:
        COMPILING.value = False
        super().put_back()


def reset() -> None:
    """Forget every compiled entry, the counters and the records."""
    with LOCK:
        forget_entries()
        records.forget_all()
