"""One frame in, (guard, replacement code) out: the callback of the frame hook.

In:   the function, its code object and its bound parameters, from the hook, before anything ran.
Out:  None (run it as it is) or `(guard, code, record)`; every decision lands in `records`.

    >>> callback = FrameCompiler(backend="eager")
    >>> compiled = frame_hook.enabled(fn, callback)

The frame is traced until it returns or until a place where it must be split; what was learned there
(the speculation log) is kept and tracing starts over.  If the compiler itself fails, the frame runs
eagerly and the failure is recorded. Mirrors torch/_dynamo/convert_frame.py.
"""

import collections
import functools
import inspect
import logging
import os
import re
import sys
import sysconfig
import threading
import traceback
import types
import weakref

import torch

from . import backends, config, coverage, frame_hook, records, runtime
from .dynamic import SizePolicy
from .exceptions import Break, Restart, SkipFrame, SpecializationError, Unsupported
from .foreign import ThreadState, faults, ours
from .graph_capture import OutputGraph
from .guards import Guard, GuardFunction, watch
from .originals import unusable
from .replacement import parameter_count, rebuild, replacement
from .symbolic_eval.evaluator import RootFrame
from .symbolic_eval.registry import RULES
from .symbolic_eval.torch_rules import STATES
from .undo import Undo
from .variables.base import Lazy
from .variables.functions import CellVar, FunctionVar
from .variables.lookup import LOOKUPS, guard_classes
from .variables.tensor import TensorVar

OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
BENCH = os.path.join(OURS, "bench") + os.sep  # its workloads are user programs
TORCH = os.path.dirname(torch.__file__) + os.sep
TORCH_MODULES = os.path.join(TORCH, "nn", "modules") + os.sep
OPTIMIZERS = os.path.join(TORCH, "optim") + os.sep
# what these call runs as plain Python: the backward pass (with hooks, and bodies of checkpoints
# that must run as they did), vmap, grad...
PLAIN = tuple(
    os.path.join(TORCH, *parts)
    for parts in (
        ("autograd", "__init__.py"),
        ("autograd", "graph.py"),
        ("utils", "checkpoint.py"),
        ("_functorch", ""),
    )
)
STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
SITE = tuple({sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib")})
TRIES = 4
LOCK = threading.RLock()
COMPILING = threading.local()
# (backend, options) -> compiler; held by what it compiled: a user's backend may hold a model
COMPILERS = weakref.WeakValueDictionary()
STATE = (
    ("GRAD_MODE", torch.is_grad_enabled),
    ("INFERENCE", torch.is_inference_mode_enabled),
    ("AUTOCAST", torch._C._is_any_autocast_enabled),
    ("DTYPE", torch.get_default_dtype),
    ("DETERMINISTIC", torch._C._get_deterministic_algorithms),
    ("FUNCTION_MODES", torch._C._len_torch_function_stack),
    ("DISPATCH_MODES", torch._C._len_torch_dispatch_stack),
    ("TRANSFORMS", torch._C._functorch.maybe_current_level),
)  # vmap, grad: None outside
DETAILS = (  # looked at only where the state above says that they matter
    (
        (
            "AUTOCAST_DTYPES",
            lambda: [
                (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
                for kind in ("cpu", "cuda")
            ],
        ),
        torch._C._is_any_autocast_enabled,
    ),
    (("DEFAULT_DEVICE", torch.get_default_device), torch._C._len_torch_function_stack),
)
logging.getLogger("torch._subclasses.fake_tensor").addFilter(
    lambda record: not getattr(COMPILING, "active", False)
)  # a break says it
CODES = weakref.WeakValueDictionary()  # every code object that has entries: what `reset` forgets


def skip_reason(code):
    """Why frames of this code are left alone, or None."""
    file = code.co_filename
    if file.startswith(OURS) and not file.startswith(BENCH):
        return "minidynamo's own code"
    if file.startswith(TORCH):
        if file.startswith(TORCH_MODULES) and (
            code.co_name == "forward" or code.co_name.startswith("<resume of forward")
        ):
            return None
        if file.startswith(OPTIMIZERS) and re.fullmatch(r"step|<resume of step.*", code.co_name):
            return None
        return "torch's own code"
    if file.startswith("<") and code.co_name == "<module>" or file.startswith("<frozen"):
        return "not a function"
    if file.startswith(STANDARD) and not file.startswith(SITE):
        return "the standard library"
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return "a generator or coroutine"
    return None


CONSTANT = frozenset()  # in FrameCompiler.floats: every float of this code is a constant


class FrameCompiler:
    """The callback that one `minidynamo.compile(...)` installs."""

    needs_tensors = (
        True  # False: frames without a tensor operation are replaced too (to test transparency)
    )

    def __init__(self, backend="inductor", fullgraph=False, dynamic=None, mode=None):
        coverage.load()
        self.backend_name, self.backend = backends.lookup_backend(backend)
        self.registered = isinstance(backend, str)
        self.fullgraph, self.dynamic, self.mode = fullgraph, dynamic, mode
        self.floats = (
            weakref.WeakKeyDictionary()
        )  # code object -> names of floats that change from call to call
        self.entries = (
            weakref.WeakValueDictionary()
        )  # id -> code object of a function that was compiled by name
        self.tries = (
            collections.Counter()
        )  # file and line of a function -> breaks of it before which no tensor was met

    @classmethod
    def of(cls, backend, fullgraph, dynamic, mode):
        """The compiler for these options: the same one each time, so that entries are shared."""
        key = (backends.identity(backend), fullgraph, dynamic, mode)
        compiler = COMPILERS.get(key)
        if compiler is None:
            compiler = COMPILERS[key] = cls(backend, fullgraph, dynamic, mode)
        return compiler

    def __call__(self, function, code, args):
        reason = skip_reason(code)
        if reason is not None:
            frame_hook.set_cache(code, ... if code.co_filename.startswith(PLAIN) else None)
            return None
        if (
            getattr(COMPILING, "active", False)
            or torch._C._functorch.maybe_current_level() is not None
        ):
            return None
        with LOCK:
            return CompilingState().around(self.convert, function, code, args)

    def convert(self, function, code, args):
        record = records.FrameRecord(
            weakref.ref(code),
            code.co_name
            if code.co_name.startswith("<resume of")
            else getattr(function, "__qualname__", code.co_name),
            backend=self.backend_name,
        )
        before = self.entries_before(code, args)
        if self.over_limit(function, code, before, args, record):
            return None
        earlier = [getattr(entry[0], "record", None) for entry in before]
        policy = SizePolicy(self.dynamic, [found.sizes for found in earlier if found is not None])
        records.counters["frames"][code.co_name] += 1
        outputs = []
        try:
            if replaced := unusable(RULES):
                raise SkipFrame(f"{replaced} is the program's own")
            result = self.trace(function, code, args, record, outputs, policy)
        except Unsupported:
            raise
        except ours(SkipFrame, RecursionError) as skipped:
            # the latter: a container that contains itself
            return self.skip(code, record, str(skipped))
        except faults() as error:
            internal_error(error, record)
            return self.skip(code, record, f"the compiler failed: {type(error).__name__}: {error}")
        finally:
            for output in outputs:
                output.forget()
        if result is None:
            return self.skip(code, record, record.skipped or "no tensor operation to compile")
        records.remember(record)
        CODES[id(code)] = code
        for found in record.graph_breaks:
            debug(1, f"graph break: {found}")
        if config.debug >= 2:  # what is printed takes a while to make
            if record.graph is not None:
                debug(2, record.graph.print_readable(print_output=False))
            debug(2, record.guard_function.source)
        return result

    def entries_before(self, code, args):
        """The entries of this code (and of this `self`) that did not fit."""
        own = id(args[0]) if args and issubclass(type(args[0]), torch.nn.Module) else None
        entries = [entry for entry in frame_hook.get_cache(code) or [] if entry[2] is self]
        return (
            [entry for entry in entries if getattr(entry[0], "owner", None) == own]
            if own is not None
            else entries
        )

    def over_limit(self, function, code, before, args, record):
        """Are there too many entries?"""
        if before:
            guard = getattr(before[-1][0], "guard_function", None)
            failure = guard.first_failure(function, *args) if guard is not None else None
            record.failed_guard, record.recompile_reason = failure or (None, "")
            if (
                failure
                and failure[0].kind == "EQUALS"
                and "is float" in failure[0].check
                and self.dynamic is not False
                and self.backend_name != "eager"
            ):
                names = self.floats.setdefault(code, set())
                if names is not CONSTANT:
                    names.add(failure[0].source.name())
        if len(before) < config.recompile_limit:
            if before:
                records.counters["recompiles"][f"{code.co_name}: {record.recompile_reason}"] += 1
                debug(1, f"recompiling {code.co_name}: {record.recompile_reason}")
            return False
        message = (
            f"{code.co_name} ({code.co_filename}:{code.co_firstlineno}) was compiled {len(before)} times "
            f"(config.recompile_limit); it runs as plain Python from now on where no entry fits. "
            f"Last guard that failed: {record.recompile_reason}"
        )
        records.counters["skipped"][message] += 1
        record.skipped = message
        records.remember(record)
        if self.fullgraph:
            raise Unsupported(message)
        return True

    def skip(self, code, record, reason):
        record.skipped = reason
        records.counters["skipped"][f"{code.co_name}: {reason}"] += 1
        records.remember(record)
        debug(1, f"skipped {code.co_name}: {reason}")
        frame_hook.set_cache(code, None)
        CODES[id(code)] = code  # `reset` gives it another chance
        return None

    def trace(self, function, code, args, record, outputs, policy):
        forced, input_sources = {}, set()
        for _ in range(config.attempt_limit):
            try:
                with record.timed("trace"):
                    frame = self.attempt(
                        function, code, args, forced, input_sources, outputs, policy
                    )
                    frame.output.check_generators()
                    tail = rebuild(frame)
                if policy.pin(pinned_sizes(frame.output)):
                    continue  # with those sizes as numbers
                if frame.split is None or not frame.output.float_inputs:
                    break
                self.floats[code] = (
                    CONSTANT  # a float that is no constant may be what broke the graph
                )
            except Restart:
                pass
            except Break as broken:  # a value cannot be rebuilt: plain Python must make it
                if broken.step is None or broken.step in forced:
                    raise SkipFrame(str(broken)) from broken
                if frame.split is not None:
                    broken.reason, broken.hint = (
                        f"{broken.reason}: {frame.split[1].reason}",
                        frame.split[1].hint or broken.hint,
                    )
                forced[broken.step] = broken.with_traceback(None)
            if self.fullgraph and forced:
                raise Unsupported(self.explain_break(next(iter(forced.values()))))
        else:
            raise SkipFrame(f"gave up after {config.attempt_limit} attempts")
        output = frame.output
        if frame.split is not None:
            found = frame.split[1]
            if not output.calls and not output.inputs and not self.worth_splitting(code, args):
                raise SkipFrame(f"no tensor before a graph break: {found.reason}")
            file, line, _ = found.stack[-1]
            record.graph_breaks = [
                records.BreakRecord(found.kind, found.reason, found.hint, file, line, found.stack)
            ]
        elif not output.calls and self.needs_tensors:
            record.skipped = "no tensor operation to compile"
            return None
        record.input_sources, record.sizes, record.pinned = (
            [variable.source for variable in output.inputs],
            policy.met,
            policy.pinned,
        )
        record.shape_env = output.shape_env if output.shape_env.table else None
        compiled = functools.partial(self.compile_graph, output, record)
        replaced = replacement(
            frame, tail, compiled, record.calls.__next__ if config.count_hits else None
        )
        with record.timed("guards"):
            guard = self.guard(output, code)
        output.shape_env.where = str  # the frame's objects must not live on with the record
        for (
            found
        ) in record.graph_breaks:  # "loop": the consequence of an earlier break inside the loop
            records.counters["graph_breaks" if found.kind != "loop" else "loop_splits"][
                f"{found.reason} at {found.file}:{found.line}"
            ] += 1
        record.guard_function, record.guards, record.replacement_code = (
            guard,
            guard.guards,
            replaced,
        )
        check = guard.check
        check.owner = id(args[0]) if args and issubclass(type(args[0]), torch.nn.Module) else None
        check.guard_function, check.record = guard, record
        entry = (check, replaced, self)
        if output.modules:
            code_ref, check_ref = weakref.ref(code), weakref.ref(check)
            check.watching = watch(output.modules, lambda: drop_entry(code_ref(), check_ref()))
        return entry

    def worth_splitting(self, code, args):
        """May tensors follow?  Asked where none was met before a break: yes for the function that
        was compiled itself, and where an argument holds one; a method of a module gets a few tries
        (its lines may be NumPy's)."""
        if any(
            entry.co_filename == code.co_filename and entry.co_firstlineno == code.co_firstlineno
            for entry in self.entries.values()
        ):
            return True
        values = [
            item
            for value in args
            for item in (
                value
                if type(value) in (list, tuple)
                else value.values()
                if type(value) is dict
                else (value,)
            )
        ]
        if any(issubclass(type(value), torch.Tensor) for value in values):
            return True
        self.tries[code.co_filename, code.co_firstlineno] += 1
        return (
            code.co_name.startswith("<resume of")
            or any(issubclass(type(value), torch.nn.Module) for value in values)
        ) and self.tries[code.co_filename, code.co_firstlineno] <= TRIES

    def attempt(self, function, code, args, forced, input_sources, outputs, policy):
        policy.start()
        output = OutputGraph(
            input_sources, self.backend_name != "eager", self.floats.get(code, ()), policy
        )
        outputs.append(output)
        LOOKUPS.clear()
        names = code.co_varnames[: parameter_count(code)]
        bound = {name: Lazy(value, output.tree.local(name)) for name, value in zip(names, args)}
        closure = []
        for n, (name, cell) in enumerate(zip(code.co_freevars, function.__closure__ or ())):
            try:
                content = Lazy(cell.cell_contents, output.tree.free(n, name))
            except ours(ValueError):
                output.pair_guards.append(
                    Guard(
                        "EMPTY",
                        (),
                        f"this_function.__closure__[{n}] == EMPTY",
                        {"EMPTY": types.CellType()},
                    )
                )
                content = None
            variable = CellVar(content, None, name)
            output.memo[id(cell)] = (variable, cell)
            closure.append(variable)
        root = FunctionVar(
            None, code, function.__globals__, function.__qualname__, closure=tuple(closure)
        )
        frame = RootFrame(output, root, bound, forced)
        depth = len(runtime.ENTERED.managers)
        try:
            frame.run()
        finally:
            for (setter, key), before in output.state_before.items():
                final = STATES[setter](*key)
                if final != before or output.entered:
                    output.state_after[setter, key] = final
            runtime.unwind(depth)
            for (setter, key), before in output.state_before.items():
                setter(*key, before)
            if output.autocast_depth or torch.set_autocast_cache_enabled in [
                setter for setter, _ in output.state_before
            ]:
                torch.clear_autocast_cache()  # of fake tensors
        return frame

    def compile_graph(self, output, record, outputs):
        """(callable or None, input variables, what to call when it raises): the backend's work on
        the captured graph."""
        if not output.calls:
            return None, [], None
        with record.timed("graph"):
            gm, example_inputs = output.finish(outputs)
        record.graph, undo = gm, Undo(output, gm, record.function, self.backend_name == "eager")
        records.counters["graphs"][record.function] += 1
        with record.timed("backend"):
            try:
                options = {"mode": self.mode} if self.registered and self.mode is not None else {}
                compiled = self.backend(gm, example_inputs, **options)
                if not callable(compiled):
                    raise TypeError(
                        f"the backend returned {type(compiled).__name__}, nothing that can be called"
                    )
            except self.backend_faults() as error:
                internal_error(error, record, f"backend {self.backend_name}: ")
                compiled = gm.forward
        record.backend_record = getattr(compiled, "record", None)
        if record.backend_record is not None:  # our guards have looked at the inputs
            compiled = getattr(compiled, "function", compiled)
        places = [
            n
            for n, variable in enumerate(output.inputs)
            if type(variable) is TensorVar and variable.cls is float
        ]
        if places:
            compiled = runtime.floats_as_tensors(compiled, places)
        inference = [
            n
            for n, variable in enumerate(outputs)
            if type(variable) is TensorVar and variable.fake.is_inference()
        ]
        if inference and self.backend_name != "eager" and not torch.is_inference_mode_enabled():
            compiled = runtime.as_inference_tensors(compiled, inference)
        if output.state_before:
            compiled = runtime.restoring(
                compiled,
                [(setter, key, value) for (setter, key), value in output.state_before.items()],
            )
        return frame_hook.disabled(undo.around(compiled)), output.inputs, undo.raised

    def backend_faults(self):
        """What the backend may raise, and plain Python runs: of the user's own backend, whatever
        it says itself."""
        return faults() if backends.is_own(self.backend) else ours(Exception)

    def guard(self, output, code):
        state = [
            Guard(
                name,
                None,
                f"{name.lower()}() == {'state_' + name.lower()}",
                {name.lower(): read, "state_" + name.lower(): read()},
            )
            for name, read in (*STATE, *(detail for detail, applies in DETAILS if applies()))
        ]
        tensors = [
            variable.source
            for variable in output.inputs
            if type(variable) is TensorVar and variable.cls is not float
        ]
        if len(tensors) > 1:  # inputs that differ now must differ later: writes may reach both
            ids = ", ".join(f"id({{{n}}})" for n in range(len(tensors)))
            output.guard_pair(f"len({{{{{ids}}}}}) == {len(tensors)}", *tensors)
        fresh = (
            output.tree.locals.get(code.co_varnames[parameter_count(code) - 1])
            if code.co_flags & inspect.CO_VARKEYWORDS
            else None
        )
        mutated = [
            v
            for v in output.sourced
            if v.mutated and v.source.kind not in ("dict", "raw_dict") and v.source is not fresh
        ]
        for (
            variable
        ) in mutated:  # a write must not reach something that was taken for another object
            for other in output.sourced:
                if (
                    other is not variable
                    and other.source is not variable.source
                    and other.source.kind not in ("dict", "raw_dict")
                    and other.source.kind != "pinned"
                    and other.python_type() is variable.python_type()
                ):
                    output.guard_pair("{0} is not {1}", variable.source, other.source)
        guard_classes(output)
        output.guard_absences()
        pinned_sizes(output)  # the backend may have decided something, too
        output.pair_guards += output.shape_env.guards()
        return GuardFunction(
            output.tree, list(code.co_varnames[: parameter_count(code)]), state, output.pair_guards
        )

    def explain_break(self, found):
        file, line, function = found.stack[-1]
        text = [
            f"graph break under fullgraph=True: {found.reason}",
            f'  File "{file}", line {line}, in {function}',
        ]
        if found.hint:
            text.append(f"  hint: {found.hint}")
        return "\n".join(text)


def internal_error(error, record, where=""):
    """Write a fault of ours down, or raise it."""
    if config.raise_internal_errors:
        raise error
    record.error = "".join(traceback.format_exception(error))
    records.counters["errors"][f"{where}{type(error).__name__}: {error}"] += 1


def pinned_sizes(output):
    """[(source name, value, line)] of the symbols that the program or the backend needed as
    numbers.  SpecializationError if one is marked dynamic."""
    found = [(source.name(), value, line) for source, value, line in output.shape_env.pinned()]
    marked = (
        {
            f"{source.name()}.shape[{d}]"
            for source, *_ in output.policy.met
            for d in output.policy.marked.get(source.name(), ())
        }
        if found
        else ()
    )
    for name, value, line in found:
        if name in marked:
            raise SpecializationError(
                f"{name} was marked dynamic, but {line or 'the backend'} needs it as the number {value}"
            )
    return found


class CompilingState(ThreadState):
    """What compiling a frame changes for this thread, see foreign.py."""

    def __init__(self):
        super().__init__()
        self.entered = len(runtime.ENTERED.managers)
        self.limit = sys.getrecursionlimit()

    def begin(self):
        COMPILING.active = True
        super().begin()
        self.take_hooks()
        sys.setrecursionlimit(max(self.limit, 20000))

    def put_back(self, error=None):
        COMPILING.active = False
        runtime.unwind(self.entered)
        super().put_back(error)
        sys.setrecursionlimit(self.limit)


def drop_entry(code, check):
    """A module that an entry was made for has died."""
    entries = frame_hook.get_cache(code) if code is not None else None
    if entries:
        entries[:] = [entry for entry in entries if entry[0] is not check]
    record = vars(check).pop("record", None) if check is not None else None
    if record in records.frames:  # the record would keep the parameters alive
        records.frames.remove(record)
    # `check` is part of a cycle, and what it holds may reach the parameters through a code object,
    # into which the garbage collector does not look: it would need a second run.


def debug(level, text):
    if config.debug >= level:
        print(text, file=sys.stderr)


def reset():
    """Forget every entry."""
    with LOCK:
        for code in list(CODES.values()):
            frame_hook.set_cache(code, [])
        for compiler in list(COMPILERS.values()):
            compiler.tries.clear()
        CODES.clear()
        records.frames.clear()
        records.counters.clear()
