"""Whole compiled graphs on disk: a process that meets a graph again neither traces nor generates anything.

In:   a captured graph, its example inputs, the mode.  Out: an `Entry`, in which compile.py looks and keeps its plan (plain data: the wrapper,
its kernels, what is saved for backward, how outputs are made, the record).

    >>> entry = open_entry(gm, inputs, mode)        # raises Uncachable where not everything that matters can be written down
    >>> entry.store(plan)
    >>> entry.load() == plan                        # in another process, too; None where there is none
    True

The key is a hash of everything that compiling looks at:

    the graph           each node's op, target, arguments, name and line (records and comments show them); sizes as expressions
    tensors             sizes, strides, dtype, device, requires_grad, ... of inputs and parameters, and which of them are one tensor
    symbolic sizes      their hints and what is known of them.  What compiling adds is kept with the entry, and assumed again on a hit
    the thread          gradients, autocast, default dtype, number of threads, torch's switches for kernels
    the compiler        its source, its config, every number in its modules; versions of Python, torch, sympy, triton; the GPU

Nothing depends on the values of tensors.  A target that is not torch's or Python's own (its code may change), a value that has no text, a
function of the compiler that somebody replaced in this process: `Uncachable`, and the graph is compiled as if there were no cache.
An entry ends with its SHA-256 and is renamed into place; one that is damaged is not there.  It is a pickle: whoever can write to
`config.cache_dir` can run code, as with the libraries that lie beside it.
Mirrors FxGraphCache (torch/_inductor/codecache.py) and torch/_functorch/_aot_autograd/autograd_cache.py.  Left out: remote caches, eviction.
"""

import functools
import hashlib
import importlib
import importlib.metadata
import io
import math
import operator
import os
import pickle
import sys
import types
from pathlib import Path

import sympy
import torch
import torch.utils._pytree as pytree
from torch import fx

from .. import config
from ..sizes.symbols import SYMBOLIC, size
from .build import cache_folder, cpu_name

PACKAGE = Path(__file__).parent.parent
SIMPLE = (bool, int, float, str, torch.dtype)
UNIMPORTANT = {
    "cache_dir",
    "debug",
    "raise_internal_errors",
    "graph_cache",
}  # names of numbers that change nothing that is kept
OWN = {
    "miniinductor",
    "minidynamo",
    "torch",
    "sympy",
    "networkx",
    "jinja2",
    "numpy",
    "triton",
} | sys.stdlib_module_names - {"__main__"}
LIBRARIES = {
    "torch",
    "builtins",
    "math",
    "operator",
    "_operator",
    "einops",
}  # whose functions have names that last
TEXTS = (*SIMPLE, complex, type(None), type(...), torch.device, torch.memory_format, torch.layout)
LARGEST = 4096  # bytes of a constant that is kept by value


class Uncachable(Exception):
    """What this graph depends on cannot be written down."""


# --- the key -------------------------------------------------------------------------------------------------------------------
def text_of(value):
    """An argument of a node, so that different values have different texts."""
    if isinstance(value, fx.Node):
        return "%" + value.name
    if isinstance(value, SYMBOLIC):
        return f"{value.node.expr}={value.node.hint}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(map(text_of, value))})"
    if isinstance(value, slice):
        return f"slice{text_of((value.start, value.stop, value.step))}"
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return f"{{{', '.join(f'{k!r}: {text_of(v)}' for k, v in value.items())}}}"
    if isinstance(value, TEXTS):
        return repr(value)
    return target_text(value)


def target_text(target):
    """The name of a function or class of torch or Python."""
    if isinstance(target, str):
        return target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        if str(target).split(".")[0] not in ("aten", "prims", "prim"):
            raise Uncachable(f"{target} is no op of torch's own")
        return f"op {target}"
    home = (
        getattr(target, "__module__", None)
        or getattr(getattr(target, "__objclass__", None), "__module__", None)
        or ""
    )
    for name in (getattr(target, "__qualname__", ""), getattr(target, "__name__", "")):
        at = sys.modules.get(home) if home.split(".")[0] in LIBRARIES else None
        for part in name.split("."):
            at = getattr(at, part, None)
        if at is target:
            return f"{home}.{name}"
    raise Uncachable(
        f"{getattr(target, '__qualname__', type(target).__name__)} is neither a number nor a function of torch's own"
    )


def tensor_text(t):
    """What compiling may look at."""
    flags = [
        t.requires_grad,
        t.is_leaf,
        t.is_inference(),
        t.is_conj(),
        t.is_neg(),
        t._is_view(),
        isinstance(t, torch.nn.Parameter),
    ]
    return f"{text_of(tuple(t.shape))} {text_of(tuple(t.stride()))} {text_of(t.storage_offset())} {t.dtype} {t.device} {flags}"


def graph_text(gm):
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
        lines.append(
            f"{node.name} {node.op} {target_text(node.target)} {text_of(node.args)} {text_of(node.kwargs)} {about} "
            f"{node.meta.get('source_line', '')} {node.meta.get('module_path', '')}"
        )
    return "\n".join(lines)


def shape_env_of(inputs):
    """Who hands out the symbols of these inputs, or None."""
    return next((v.node.shape_env for v in inputs if isinstance(v, torch.SymInt)), None)


def sizes_text(env):
    """What is known of symbolic sizes: their bounds, and every decision so far."""
    rows = [f"{s} {row.hint} {row.low} {row.high}" for s, row in env.table.items()]
    if any(row.hint is None for row in env.table.values()):
        raise Uncachable("sizes that only the run knows")
    return "\n".join(rows + [str(d.fact) for d in env.decisions])


def thread_text():
    """The state of this thread and the switches of torch that decide which ops and kernels are taken."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    autocast = [
        (d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")
    ]
    return str(
        [
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            autocast,
            torch.get_default_dtype(),
            str(torch.get_default_device()),
            torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.get_float32_matmul_precision(),
            cuda.matmul.allow_tf32,
            cuda.matmul.allow_fp16_reduced_precision_reduction,
            cuda.matmul.allow_bf16_reduced_precision_reduction,
            cuda.flash_sdp_enabled(),
            cuda.mem_efficient_sdp_enabled(),
            cuda.math_sdp_enabled(),
            cuda.cudnn_sdp_enabled(),
            cudnn.enabled,
            cudnn.benchmark,
            cudnn.deterministic,
            cudnn.allow_tf32,
            torch.backends.mkldnn.enabled,
            torch.backends.opt_einsum.enabled,
            torch._C._len_torch_function_stack(),
            torch._C._len_torch_dispatch_stack(),
        ]
    )


@functools.cache
def source_hash():
    """Of the compiler's files."""
    found = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".c", ".h", ".jinja"):
            found.update(
                str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes() + b"\0"
            )
    return found.hexdigest()


@functools.cache
def modules():
    """The compiler's modules, all of them imported."""
    parts = [
        path.relative_to(PACKAGE.parent).with_suffix("").parts
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.stem != "triton_worker"
    ]
    names = [".".join(part for part in path if part != "__init__") for path in parts]
    return {name: importlib.import_module(name) for name in names}


def compiler_text():
    """The compiler as it is in this process: its numbers and switches.  Raises Uncachable where a function of it was replaced."""
    found = []
    for home, module in modules().items():
        for name, value in vars(module).items():
            if name.startswith("_") or name in UNIMPORTANT:
                continue
            if (
                isinstance(value, SIMPLE)
                or isinstance(value, tuple)
                and all(isinstance(v, SIMPLE) for v in value)
            ):
                found.append(f"{home}.{name}={value!r}")
            elif isinstance(value, (set, frozenset)) and name.isupper():
                found.append(
                    f"{home}.{name}={sorted(getattr(v, '__qualname__', None) or str(v) for v in value)}"
                )
            else:
                is_table, is_ours = (
                    isinstance(value, dict) and name.isupper(),
                    isinstance(value, type) and value.__module__ == home,
                )
                for member in (
                    value.values() if is_table else vars(value).values() if is_ours else [value]
                ):
                    check_own(member, f"{home}.{name}")
    return "\n".join(found)


def check_own(value, where):
    home = getattr(value, "__module__", None)
    if isinstance(value, (types.FunctionType, type)) and home and home.split(".")[0] not in OWN:
        raise Uncachable(
            f"{where} holds {home}.{value.__qualname__}, which is no part of this compiler"
        )


@functools.cache
def versions_text(cuda):
    packages = ["sympy", "networkx", "jinja2"] + ["triton"] * bool(
        importlib.util.find_spec("triton")
    )
    found = [
        sys.version,
        torch.__version__,
        str(torch.version.git_version),
        cpu_name(),
        os.environ.get("TRITON_INTERPRET", ""),
    ]
    found += [f"{name} {importlib.metadata.version(name)}" for name in packages]
    for number in range(torch.cuda.device_count() if cuda else 0):
        about = torch.cuda.get_device_properties(number)
        found.append(
            f"{about.name} {about.major}.{about.minor} {about.multi_processor_count} {about.total_memory}"
        )
    return "\n".join(found)


# --- entries ---------------------------------------------------------------------------------------------------------------------
def open_entry(gm, inputs, mode):
    """The entry of this graph.  Raises Uncachable."""
    if config.freezing:
        raise Uncachable("freezing: constants are made of the parameters' values")
    held = list({id(t): t for t in [*gm.parameters(), *gm.buffers()]}.values())
    env, tensors, first = shape_env_of(inputs), [*inputs, *held], {}
    parts = [
        source_hash(),
        compiler_text(),
        versions_text(any(t.device.type == "cuda" for t in tensors if isinstance(t, torch.Tensor))),
        thread_text(),
        str(mode),
        graph_text(gm),
        *[tensor_text(t) if isinstance(t, torch.Tensor) else text_of(t) for t in tensors],
        str([first.setdefault(id(t), i) for i, t in enumerate(tensors)]),
        sizes_text(env) if env is not None else "",
    ]
    return Entry(hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40], held, env)


class Entry:
    """held: the tensors that the graph holds, in the order of its module; env: who hands out its symbols."""

    def __init__(self, key, held, env):
        self.key, self.held, self.env = key, held, env
        self.known = (
            0 if env is None else len(env.decisions)
        )  # decisions before anything was compiled

    def path(self, part):
        return os.path.join(cache_folder(), f"{self.key}{part}.graph")

    def load(self, part=""):
        """What `store` was given, or None.  part: "" or a name for one of several things that belong to the graph."""
        try:
            with open(self.path(part), "rb") as file:
                content = file.read()
            if hashlib.sha256(content[:-32]).digest() != content[-32:]:
                return None
            facts, value = Reader(io.BytesIO(content[:-32]), self.held).load()
            if facts and not all(self.env.size_hint(fact) for fact, _ in facts):
                return None
            for fact, line in facts:
                self.env.decide(fact, line)
            return value
        except Exception:  # not there, cut short, or of a library that is gone: it is made again
            return None

    def store(self, value, part=""):
        """Why it could not be kept, or None."""
        facts = (
            [(d.fact, d.line) for d in self.env.decisions[self.known :] if not d.proved]
            if self.env is not None
            else []
        )
        try:
            text = io.BytesIO()
            Writer(text, self.held).dump((facts, value))
            content, temporary = text.getvalue(), f"{self.path(part)}.{os.getpid()}"
            with open(temporary, "wb") as file:
                file.write(content + hashlib.sha256(content).digest())
            os.replace(temporary, self.path(part))  # a reader sees a whole file or none
        except (
            Exception
        ) as reason:  # an Uncachable, a full disk, or pickle's word that something has no text
            return f"{type(reason).__name__}: {reason}"


class Writer(pickle.Pickler):
    """A tensor that the graph's module holds is written as its number; what pickle has no text for, as a call that makes or finds it again."""

    def __init__(self, file, held):
        super().__init__(file, protocol=5)
        self.held = held

    def persistent_id(self, value):
        return (
            next((i for i, t in enumerate(self.held) if t is value), None)
            if isinstance(value, torch.Tensor)
            else None
        )

    def reducer_override(self, value):
        if isinstance(value, torch.Tensor):
            if value.nbytes > LARGEST:
                raise Uncachable(f"a constant of {value.nbytes} bytes")
            return constant, (
                value.tolist(),
                value.dtype,
                value.device,
                tuple(value.shape),
                value.stride(),
            )
        if isinstance(value, torch._ops.OpOverload):
            return torch_object, (f"ops.{value}",)
        if isinstance(value, SYMBOLIC):
            return size, (sympy.sympify(size(value)),)
        if isinstance(value, pytree.TreeSpec):
            return pytree.tree_structure, (pytree.tree_unflatten(range(value.num_leaves), value),)
        if value is math:
            return importlib.import_module, ("math",)
        if isinstance(value, types.BuiltinFunctionType):
            for home, module in (("", torch), ("_C.", torch._C), ("_C._nn.", torch._C._nn)):
                if getattr(module, value.__name__, None) is value:
                    return torch_object, (home + value.__name__,)
        return NotImplemented


class Reader(pickle.Unpickler):
    def __init__(self, file, held):
        super().__init__(file)
        self.persistent_load = held.__getitem__


def torch_object(path):
    return operator.attrgetter(path)(torch)


def constant(values, dtype, device, shape, stride):
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(
        torch.tensor(values, dtype=dtype).reshape(shape)
    )
