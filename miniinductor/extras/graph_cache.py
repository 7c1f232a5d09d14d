"""Whole compiled graphs on disk: a process that meets a graph again neither traces nor generates
anything.

In:   a captured graph, its example inputs, the mode.  Out: an `Entry`, in which compile.py looks
      and keeps its plan (plain data: the wrapper,
its kernels, what is saved for backward, how outputs are made, the record).

    >>> entry = open_entry(gm, inputs, mode)     # raises Uncachable where that cannot be written
    >>> entry.store(plan)
    >>> entry.load() == plan                     # in another process, too; None where there is none
    True

The key is a hash of everything that compiling looks at:

    the graph        each node's op, target, arguments, name and line (records and comments show
                     them); sizes as expressions
    tensors          sizes, strides, dtype, device, requires_grad, ... of inputs and parameters, and
                     which of them are one tensor
    symbolic sizes   their hints and what is known of them.  What compiling adds is kept with the
                     entry, and assumed again on a hit
    the thread       gradients, autocast, default dtype, number of threads, switches for kernels
    the compiler     its source, its config, every number in its modules; versions of Python, torch,
                     sympy, triton; the GPU

Nothing depends on the values of tensors.  A value is written by its exact type: a subclass of int,
float, str, tuple (an enum, say) may print as it likes, and is not written.  A target that is not
torch's or Python's own (its code may change), a value that has no text, a function of the compiler
that somebody replaced in this process: `Uncachable`, and the graph is compiled as if there were no
cache.  An entry is a pickle, and its wrapper is Python code: disk.py hands out only what
lies there whole, and with careful_disk.py only what this user has written.

Mirrors FxGraphCache (torch/_inductor/codecache.py) and
torch/_functorch/_aot_autograd/autograd_cache.py.  Left out: remote caches.
"""

import contextlib
import copyreg
import functools
import hashlib
import importlib
import importlib.metadata
import io
import math
import operator
import os
import pickle
import struct
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.immutable_collections import immutable_dict, immutable_list

from .. import config, coverage
from ..autograd.runtime import Backward, Cut, Plan
from ..compile import Compilation
from ..foreign import faults, ours
from ..hooks import extends
from ..records import CompileRecord, Later
from ..sizes.symbols import SYMBOLIC, size
from ..runtime.program import NewWorkspace, Program
from .careful_compiler import cpu_name
from .disk import disk

PACKAGE = Path(__file__).parent.parent
SIMPLE = (bool, int, float, str, bytes, type(None), torch.dtype)
# names of numbers that change nothing that is kept
UNIMPORTANT = set(
    """cache_dir cache_bytes compiler_seconds debug raise_internal_errors graph_cache
    keep_steps""".split()
)
OWN = {*sys.stdlib_module_names, *"miniinductor minidynamo torch sympy networkx jinja2".split()}
OWN = (OWN | {"numpy", "triton"}) - {"__main__"}
# whose functions have names that last
LIBRARIES = "torch builtins math operator _operator einops".split()
# what is kept of a record
KEPT = """saved fusions fallbacks kernels wrapper_source memory_plan memory_lives memory_steps
    peak_live_bytes notes""".split()
LARGEST = 4096  # bytes of a constant that is kept by value


def ambient(function: Callable) -> Callable:
    """`function` without arguments, to be called later with gradients, autocast and this package's
    switches as they are now; it prints nothing."""
    recording, switches = torch.is_grad_enabled(), config.switches() | {"debug": 0}
    autocast = [
        (d, torch.get_autocast_dtype(d), torch.is_autocast_enabled(d)) for d in ("cpu", "cuda")
    ]

    def called() -> Any:
        with contextlib.ExitStack() as stack:
            for context in (
                torch.set_grad_enabled(recording),
                config.patch(**switches),
                *[torch.autocast(d, dtype, enabled) for d, dtype, enabled in autocast],
            ):
                stack.enter_context(context)
            return function()

    return called


class Uncachable(Exception):
    """What this graph depends on cannot be written down."""


# --- the key --------------------------------------------------------------------------------------
def text_of(value: Any) -> str:
    """An argument of a node, so that different values have different texts.

    By the exact type: a subclass (an enum, a float of NumPy's) may hide what it is behind a
    `__repr__` of its own."""
    kind = type(value)
    if kind in WRITERS:
        return f"{kind.__name__} {WRITERS[kind](value)}"
    if isinstance(value, tuple) and kind is not tuple:  # a result of torch's with named parts
        return f"{target_text(kind)} {text_of(tuple(value))}"
    return target_text(value)


def items_text(values: Iterable[Any]) -> str:
    return f"({', '.join(map(text_of, values))})"


def dict_text(table: dict) -> str:
    return f"{{{', '.join(f'{text_of(key)}: {text_of(value)}' for key, value in table.items())}}}"


def float_text(value: Any) -> str:
    """Its bits: -0.0 and the kinds of NaN are told apart."""
    return struct.pack("<d", value).hex()


def symbolic_text(value: Any) -> str:
    return f"{value.node.expr}={text_of(value.node.hint)}"


WRITERS = {  # exact type -> its text
    **dict.fromkeys((type(None), type(...), type(NotImplemented), bool, int, str, bytes), repr),
    **dict.fromkeys((torch.dtype, torch.device, torch.memory_format, torch.layout), repr),
    float: float_text,
    complex: lambda value: f"{float_text(value.real)} {float_text(value.imag)}",
    **dict.fromkeys((tuple, list, torch.Size, immutable_list), items_text),
    **dict.fromkeys((dict, immutable_dict), dict_text),
    slice: lambda value: items_text((value.start, value.stop, value.step)),
    range: lambda value: items_text((value.start, value.stop, value.step)),
    **dict.fromkeys(SYMBOLIC, symbolic_text),
    fx.Node: lambda value: "%" + value.name,
}


def target_text(target: Any) -> str:
    """The name of a function or class of torch or Python."""
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        if str(target).split(".")[0] not in ("aten", "prims", "prim"):
            raise Uncachable(f"{target} is no op of torch's own")
        return f"op {target}"
    owner = getattr(target, "__objclass__", None)
    home = getattr(target, "__module__", None) or getattr(owner, "__module__", None) or ""
    for name in (getattr(target, "__qualname__", ""), getattr(target, "__name__", "")):
        at = sys.modules.get(home) if home.split(".")[0] in LIBRARIES else None
        for part in name.split("."):
            at = getattr(at, part, None)
        if at is target:
            return f"{home}.{name}"
    raise Uncachable(
        f"{getattr(target, '__qualname__', type(target).__name__)} is neither a number nor a "
        "function of torch's own"
    )


def tensor_text(t: torch.Tensor) -> str:
    """What compiling may look at."""
    flags = [t.requires_grad, t.is_leaf, t.is_inference(), t.is_conj(), t.is_neg(), t._is_view()]
    flags += [t._is_zerotensor(), isinstance(t, torch.nn.Parameter)]
    layout = (tuple(t.shape), tuple(t.stride()), t.storage_offset(), t.dtype, t.device)
    return text_of((*layout, *flags))


def graph_text(gm: fx.GraphModule) -> str:
    """Every node, one per line; tensors behind get_attr nodes by their description and number."""
    numbers, lines = {}, []
    for node in gm.graph.nodes:
        about = ""
        if node.op == "get_attr":
            tensor = operator.attrgetter(node.target)(gm)
            if not isinstance(tensor, torch.Tensor):
                raise Uncachable(f"{node.target} is a {type(tensor).__name__}")
            about = f"tensor {numbers.setdefault(id(tensor), len(numbers))} {tensor_text(tensor)}"
        elif node.op == "call_module":
            raise Uncachable("a call of a module")
        where = tuple(node.meta.get(key) for key in ("source_line", "module_path", "checkpointed"))
        what = (node.name, node.op, node.target, node.args, node.kwargs, about, *where)
        lines.append(text_of(what))
    return "\n".join(lines)


def shape_env_of(inputs: Sequence[Any]) -> Any:
    """Who hands out the symbols of these inputs, or None."""
    return next((v.node.shape_env for v in inputs if isinstance(v, torch.SymInt)), None)


def sizes_text(env: Any) -> str:
    """What is known of symbolic sizes: their bounds, and every decision so far."""
    rows = [f"{s} {text_of(row.hint)} {row.low} {row.high}" for s, row in env.table.items()]
    if any(row.hint is None for row in env.table.values()):
        raise Uncachable("numbers that are drawn when the graph runs")
    return "\n".join(rows + [str(d.fact) for d in env.decisions])


THREAD_STATE = """is_grad_enabled is_inference_mode_enabled get_default_dtype get_default_device
    get_num_threads are_deterministic_algorithms_enabled
    is_deterministic_algorithms_warn_only_enabled get_float32_matmul_precision
    _C._len_torch_function_stack _C._len_torch_dispatch_stack
    _C._get_deterministic_fill_uninitialized_memory"""  # functions of torch
THREAD: list[Callable] = [operator.attrgetter(name)(torch) for name in THREAD_STATE.split()]
for _read in (torch.is_autocast_enabled, torch.get_autocast_dtype):
    THREAD += [functools.partial(_read, device) for device in ("cpu", "cuda")]
# kinds that scaled_dot_product_attention may take
ATTENTION = ("flash", "mem_efficient", "math", "cudnn")
SWITCHES = """cuda.matmul.allow_tf32 cuda.matmul.allow_fp16_reduced_precision_reduction
    cuda.matmul.allow_bf16_reduced_precision_reduction cuda.matmul.allow_fp16_accumulation
    cudnn.enabled cudnn.benchmark cudnn.deterministic cudnn.allow_tf32 mkldnn.enabled
    mkldnn.deterministic mkldnn.allow_tf32 mkldnn.matmul.fp32_precision
    mkldnn.conv.fp32_precision mkldnn.rnn.fp32_precision opt_einsum.enabled opt_einsum.strategy
    quantized.engine""".split()  # attributes of torch.backends
ENVIRONMENT = ("TRITON_INTERPRET",)  # variables that decide what is generated


def thread_text() -> str:
    """The state of this thread, and the switches of torch and the environment."""
    found = [read() for read in THREAD]
    found += [switch(name) for name in SWITCHES]
    found += [getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in ATTENTION]
    found += [os.environ.get(name) for name in ENVIRONMENT]
    return text_of(found)


def switch(name: str) -> Any:
    """The value of a switch, None where this torch has none of that name."""
    value = torch.backends
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


@functools.cache
def source_hash() -> str:
    """Of the compiler's files."""
    found = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".c", ".h", ".jinja"):
            found.update(
                str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes() + b"\0"
            )
    return found.hexdigest()


@functools.cache
def modules() -> Any:
    """The compiler's modules, all of them imported; without the coverage that is not there."""
    missing = tuple(f"{name}." for name in coverage.absent)
    parts = [
        path.relative_to(PACKAGE.parent).with_suffix("").parts
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.parts[-2:] != ("gpu", "worker.py")  # a script, for processes of its own
    ]
    names = [".".join(part for part in path if part != "__init__") for path in parts]
    there = [name for name in names if not f"{name}.".startswith(missing)]
    return {name: importlib.import_module(name) for name in there}


def compiler_text() -> str:
    """The compiler as it is in this process: its numbers and switches.  Raises Uncachable where a
    function of it was replaced.

    A module is described again where something in it is another object than last time."""
    found = []
    for home, module in modules().items():
        known, objects = _known.get(home), [*vars(module), *vars(module).values()]
        if known is None or not known.holds(objects):
            parts = parts_of(home, module)
            known = Described(objects, parts, contents_of(parts), described(home, module))
            _known[home] = known
        found.append(known.text)
    return "\n".join(found)


@dataclass
class Described:
    """A module when it was described.  objects: its names and values; parts: the tables and classes
    among them, which are looked into."""

    objects: list[Any]
    parts: list[Any]
    contents: list[Any]
    text: str

    def holds(self, objects: list[Any]) -> bool:
        """Is all of it the same still?"""
        same = same_objects(self.objects, objects)
        return same and same_objects(self.contents, contents_of(self.parts))


_known: dict[str, Described] = {}


def same_objects(before: list[Any], now: list[Any]) -> bool:
    return len(before) == len(now) and all(map(operator.is_, before, now))


def parts_of(home: str, module: Any) -> list[Any]:
    """The tables of the module, and its own classes."""
    return [
        value
        for name, value in vars(module).items()
        if is_table(name, value) or (isinstance(value, type) and value.__module__ == home)
    ]


def is_table(name: str, value: Any) -> bool:
    """A registry, or a set of ops: what else is a dictionary may be a cache."""
    return isinstance(value, (set, frozenset, dict)) and name.isupper()


def contents_of(parts: list[Any]) -> list[Any]:
    found: list[Any] = []
    for part in parts:
        table = vars(part) if isinstance(part, type) else part
        found += table if isinstance(table, (set, frozenset)) else table.values()
    return found


def described(home: str, module: Any) -> str:
    """The module's numbers, texts and sets.  Raises Uncachable."""
    found = []
    for name, value in vars(module).items():
        if name.startswith("_") or module is config and name in UNIMPORTANT:
            continue
        where = f"{home}.{name}"
        if is_plain(value):
            found.append(f"{where}={text_of(value)}")
        elif is_table(name, value) and not isinstance(value, dict):
            names = [getattr(v, "__qualname__", None) or str(v) for v in value]
            found.append(f"{where}={sorted(names)}")
        elif is_table(name, value):
            check_own(value.values(), where)
        elif isinstance(value, type) and value.__module__ == home:
            check_own(vars(value).values(), where)
        else:
            check_own([value], where)
    return "\n".join(found)


def is_plain(value: Any) -> bool:
    """Is it a number, a text, a dtype, or a tuple of such, all of exact types?"""
    if type(value) is tuple:
        return all(map(is_plain, value))
    return type(value) in SIMPLE


def check_own(values: Iterable[Any], where: str) -> None:
    for value in values:
        home = getattr(value, "__module__", None) or "torch"
        is_code = isinstance(value, (types.FunctionType, type))
        if is_code and home.split(".")[0] not in OWN:
            text = f"{where} holds {home}.{value.__qualname__}"
            raise Uncachable(f"{text}, which is no part of this compiler")


@functools.cache
def versions_text(cuda: bool) -> str:
    packages = ["sympy", "networkx", "jinja2"]
    if importlib.util.find_spec("triton"):
        packages.append("triton")
    found = [sys.version, torch.__version__, str(torch.version.git_version), cpu_name()]
    found += [f"{name} {importlib.metadata.version(name)}" for name in packages]
    for number in range(torch.cuda.device_count() if cuda else 0):
        about = torch.cuda.get_device_properties(number)
        found.append(
            f"{about.name} {about.major}.{about.minor} {about.multi_processor_count} "
            f"{about.total_memory}"
        )
    return "\n".join(found)


# --- entries --------------------------------------------------------------------------------------
def open_entry(gm: fx.GraphModule, inputs: Sequence[Any], mode: str | None) -> Any:
    """The entry of this graph.  Raises Uncachable."""
    if config.freezing:
        raise Uncachable("freezing: constants are made of the parameters' values")
    held = list({id(t): t for t in [*gm.parameters(), *gm.buffers()]}.values())
    env, tensors = shape_env_of(inputs), [*inputs, *held]
    parts = [
        source_hash(),
        compiler_text(),
        versions_text(any(t.device.type == "cuda" for t in tensors if isinstance(t, torch.Tensor))),
        thread_text(),
        text_of(mode),
        graph_text(gm),
        *[tensor_text(t) if isinstance(t, torch.Tensor) else text_of(t) for t in tensors],
        shared_text(tensors),
        sizes_text(env) if env is not None else "",
    ]
    return Entry(hashlib.sha256(repr(parts).encode()).hexdigest()[:40], held, env)


def shared_text(values: Iterable[Any]) -> str:
    """Which of the graph's inputs and tensors are one, and which share memory."""
    first = {}
    same = [first.setdefault(id(value), n) for n, value in enumerate(values)]
    memories = [
        first.setdefault(("memory", value.untyped_storage()._cdata), n)
        for n, value in enumerate(values)
        if isinstance(value, torch.Tensor)
    ]
    return text_of((same, memories))


class Entry:
    """held: the tensors that the graph holds, in the order of its module; env: who hands out its
    symbols."""

    def __init__(self, key: str, held: Any, env: Any) -> None:
        self.key, self.held, self.env = key, held, env
        # decisions before anything was compiled
        self.known = 0 if env is None else len(env.decisions)

    def file(self, part: str) -> str:
        return f"{self.key}{part}.graph"

    def load(self, part: str = "") -> Any:
        """What `store` was given, or None.  part: "" or a name for one of several things that
        belong to the graph."""
        try:
            content = disk().read(self.file(part))
            if content is None:
                return None
            facts, value = Reader(io.BytesIO(content), self.held).load()
            if facts and not all(self.env.size_hint(fact) for fact, _ in facts):
                return None
            for fact, line in facts:
                self.env.decide(fact, line)
            return value
        except ours(Exception):  # not there, cut short, or of a library that is gone: made again
            return None

    def store(self, value: Any, part: str = "") -> str | None:
        """Why it could not be kept, or None."""
        facts = []
        if self.env is not None:
            facts = [(d.fact, d.line) for d in self.env.decisions[self.known :] if not d.proved]
        try:
            text = io.BytesIO()
            Writer(text, self.held).dump((facts, value))
            disk().write(self.file(part), text.getvalue())
        except ours(Exception) as reason:
            # an Uncachable, a full disk, or pickle's word that something has no text
            return f"{type(reason).__name__}: {reason}"

    def keep(self, record: CompileRecord, value: Any, part: str = "") -> None:
        """Store a plan or program, and what the record says."""
        kept = {name: getattr(record, name) for name in KEPT}
        reason = self.store((value, kept), part)
        if reason:
            record.notes.append(f"not kept on disk: {reason}")

    def restored(self, record: CompileRecord, part: str = "") -> Any:
        """What `keep` was given, or None; the rest is the record's again."""
        found = self.load(part)
        if found is None:
            return None
        value, kept = found
        record.__dict__.update(kept)
        record.notes.append("read from disk: compiled before")
        return value


LEFT_OUT: dict[type, Callable[[Any], dict[str, Any]]] = {  # what is kept of these: all but ...
    Plan: lambda plan: vars(plan) | {"joint": replace(plan.joint, recorded=None, graph=None)},
    Program: lambda program: vars(program) | {"functions": None},
    NewWorkspace: lambda made: {k: v for k, v in vars(made).items() if k != "numbers"},
}


class Writer(pickle.Pickler):
    """A tensor that the graph's module holds is written as its number; what pickle has no text for,
    as a call that makes or finds it again."""

    def __init__(self, file: Any, held: Any) -> None:
        super().__init__(file, protocol=5)
        self.held = held

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        return next((i for i, t in enumerate(self.held) if t is value), None)

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.nbytes > LARGEST:
                raise Uncachable(f"a constant of {value.nbytes} bytes")
            layout = (value.dtype, value.device, tuple(value.shape), value.stride())
            return constant, (bytes_of(value), *layout)
        if isinstance(value, torch._ops.OpOverload):
            return torch_object, (f"ops.{value}",)
        if isinstance(value, SYMBOLIC):
            return size, (sympy.sympify(size(value)),)
        if isinstance(value, pytree.TreeSpec):
            return pytree.tree_structure, (pytree.tree_unflatten(range(value.num_leaves), value),)
        if type(value) in LEFT_OUT:
            return copyreg.__newobj__, (type(value),), LEFT_OUT[type(value)](value)
        if value is math:
            return importlib.import_module, ("math",)
        if isinstance(value, types.BuiltinFunctionType):
            for home, module in (("", torch), ("_C.", torch._C), ("_C._nn.", torch._C._nn)):
                if getattr(module, value.__name__, None) is value:
                    return torch_object, (home + value.__name__,)
        return NotImplemented


class Reader(pickle.Unpickler):
    def __init__(self, file: Any, held: Any) -> None:
        super().__init__(file)
        self.persistent_load = held.__getitem__


def torch_object(path: str) -> Any:
    return operator.attrgetter(path)(torch)


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Its elements, row by row, bit for bit."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return bytes(plain.view(torch.uint8).tolist())


def constant(content: Any, dtype: torch.dtype, device: Any, shape: Any, stride: Any) -> Any:
    made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    if content:
        made.copy_(torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape))
    return made


# --- for the driver -------------------------------------------------------------------------------
@extends(Compilation)
class Kept(Compilation):
    """Plans are looked for on disk, and kept there."""

    entry: Entry | None = None  # the graph's place

    def plan(self) -> Plan:
        if not (self.generates and config.graph_cache):
            return super().plan()
        with self.record.timed("look on disk"):
            self.entry = self.open()
            plan = self.entry and self.entry.restored(self.record)
        if plan:
            self.parts = self.parts_again(plan.cut is not None)
            self.record.print_stages()
            return plan
        plan = super().plan()
        if self.entry:
            self.entry.keep(self.record, plan)
        return plan

    def open(self) -> Entry | None:
        """None, and a note, where what the graph depends on cannot be written down."""
        try:
            return open_entry(self.gm, self.inputs, self.mode)
        except Uncachable as reason:
            text = str(reason)
        except faults() as error:  # another torch may lack a switch that the key asks for
            if config.raise_internal_errors:
                raise
            text = f"internal error, {type(error).__name__}: {error}"
        self.record.notes.append(f"not kept on disk: {text}")
        return None

    def parts_again(self, is_training: bool) -> Callable:
        """Of a plan that came from disk: what traces the graph again for what is not kept: graphs,
        in the record; the parts of the joint graph, which it gives."""
        made_like = [like(value) for value in self.inputs]

        def plan_again() -> tuple[Any, CompileRecord]:
            again = type(self)(self.gm, [make() for make in made_like], self.mode)
            again.record.input_graph, again.record.keeps_steps = self.gm, True
            super(Kept, again).plan()
            return again.parts and again.parts(), again.record

        again = functools.cache(ambient(plan_again))
        names = ["aten_graph", "functional_graph", "lowered_graph", "loop_ir", "fused_ir", "steps"]
        if is_training:
            names.append("joint_graph")
        for name in names:
            setattr(self.record, name, Later(lambda name=name: getattr(again()[1], name)))
        return lambda: again()[0]

    def backward(self, cut: Cut, start: Callable) -> Backward:
        half: Any = super().backward(cut, start)
        half.entry = self.entry
        return half


def like(value: object) -> Callable[[], object]:
    """A function that gives a fake tensor with everything of `value` that tracing looks at; of a
    number, or of a fake, itself."""
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        return lambda: value
    about, device = (value.shape, value.stride(), value.dtype), value.device
    needs, leaf = value.requires_grad, value.is_leaf

    def make() -> torch.Tensor:
        with FakeTensorMode(), torch.enable_grad():
            fake = torch.empty_strided(
                *about[:2], dtype=about[2], device=device, requires_grad=needs
            )
            return fake if leaf else fake.view_as(fake)

    return make
