"""C++ sources in, callable kernels out.

In:   kernel sources with NAME where the function's name goes.  Out: one callable per source.

Equal sources are compiled once, and shared objects are kept on disk under a key of everything they
depend on.

    >>> add_1 = 'extern "C" int NAME(void** args) { ((float*)args[0])[0] += 1; return 0; }'
    >>> [kernel] = build_kernels([(add_1, "add")])
    >>> kernel(x)                   # tensors and ints
    >>> x
    tensor([2., 1., 1.])

Shared objects are kept on disk (disk.py).  What cannot be built or written raises CompilerError, on
which `compile_fx` runs the graph eagerly and records the message.  Here the compiler is g++;
extras/careful_compiler.py takes the one that CXX names, or clang, and does not wait for ever.

Mirrors torch/_inductor/codecache.py and cpp_builder.py.  Left out: precompiled headers (the prelude
has no need of them), remote caches, cross compilation.
"""

import ctypes
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .. import config, coverage
from ..exceptions import CompilerError
from ..foreign import ours
from ..hooks import extended
from .disk import disk, remove_file
from .launch import kernel_at

# -fno-math-errno, -fno-trapping-math: nobody reads errno or floating-point flags.
# -ffp-contract=off: `a*b + c` rounds twice, as eager does.
# -fwrapv: integer overflow wraps, as torch's does.
# Not -ffast-math: it changes results, and linking with it sets flush-to-zero in the whole process.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fwrapv",
    "-shared",
    "-fPIC",
    "-w",
)
# what stands before generated kernels; coverage adds files of its own
PRELUDES = [Path(__file__).parent.parent / "codegen" / "cpp_prelude.h"]
LOADED: list[Callable[[ctypes.CDLL], None]] = []  # told of each library that is loaded
KERNELS_PER_FILE = 6


def build_kernels(sources: Iterable[tuple[str, str]]) -> list[Callable[..., None]]:
    """[(source, name)] -> callables, in the same order.  Raises CompilerError if the compiler
    refuses one."""
    sources = list(sources)
    unique: dict[str, tuple[str, str]] = {}
    for source, name in sources:
        compiler().look_at(source, name)
        unique.setdefault(strip_comments(source), (source, f"{name}_{len(unique)}"))
    texts = [source.replace("NAME(", f"{name}(", 1) for source, name in unique.values()]
    files = max(1, min(os.cpu_count() or 1, -(-len(texts) // KERNELS_PER_FILE)))
    parts = [[prelude(), *texts[i::files]] for i in range(files)]
    libraries = build_shared_objects(["\n".join(part) for part in parts])
    kernels = {}
    for number, (key, (_, name)) in enumerate(unique.items()):
        library = libraries[number % files]
        address = ctypes.cast(library[name], ctypes.c_void_p).value or 0
        kernels[key] = kernel_at(address, name, library)
    return [kernels[strip_comments(source)] for source, _ in sources]


# --- shared objects -------------------------------------------------------------------------------
def build_shared_objects(sources: Sequence[str]) -> list[Any]:
    """Load each source's shared object, compiling in parallel those that are not on disk."""
    command = compiler_command()
    names = [cache_key(source, command) + ".so" for source in sources]
    libraries = [load(name) for name in names]
    missing = [number for number, library in enumerate(libraries) if library is None]
    if missing:
        compiler().make({names[n]: sources[n] for n in missing})
    for n in missing:
        libraries[n] = load(names[n])
        if libraries[n] is None:
            raise CompilerError(f"the compiler made {names[n]}, but it cannot be loaded")
    return libraries


class Compiler:
    """g++, for one build."""

    def words(self) -> tuple[str, ...]:
        """Of its command.  Raises CompilerError if it is not there."""
        path = shutil.which("g++")
        if path is None:
            raise CompilerError("miniinductor needs a C++ compiler and found no g++")
        return (path,)

    def flags(self) -> list[str]:
        flags = list(FLAGS)
        if platform.machine() == "x86_64":
            # with a red zone, gcc 12 may keep a vector where the stack is not aligned for it: gcc's
            # bug 109780
            flags.append("-mno-red-zone")
        flags.append("-fopenmp" if config.openmp else "-fopenmp-simd")
        if vector_bits() == 512:
            flags.append("-mprefer-vector-width=512")
        return flags

    def version(self) -> str:
        """What it says."""
        return self.printed(self.start([*self.words(), "-dumpfullversion", "-dumpversion"]))

    def look_at(self, source: str, name: str) -> None:
        """Raises CompilerError for a kernel that it must not be given."""

    def make(self, sources: dict[str, str]) -> None:
        """{name of a shared object: its source}: make them.  Raises CompilerError."""
        with tempfile.TemporaryDirectory() as place:
            self.make_in(place, sources)

    def make_in(self, place: str, sources: dict[str, str]) -> None:
        """Make them, side by side, in this folder; what is made is kept on disk."""
        running: list[tuple[str, Path, subprocess.Popen]] = []
        for number, (name, source) in enumerate(sources.items()):
            path = Path(place) / f"{number}.cpp"
            path.write_text(source)
            files = [str(path), "-o", str(path.with_suffix(".so")), "-lm"]
            running.append((name, path, self.start([*compiler_command(), *files], place)))
        for name, path, process in running:
            errors = self.printed(process)
            if process.returncode:
                raise CompilerError(self.refusal(errors, path, name))
            disk().write(name, path.with_suffix(".so").read_bytes())

    def start(self, command: list[str], place: str | None = None) -> subprocess.Popen:
        """The command begins to run; place: where its temporary files may lie."""
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def printed(self, process: subprocess.Popen) -> str:
        """What it prints until it ends."""
        printed, errors = process.communicate()
        return ((printed or b"") + (errors or b"")).decode(errors="replace").strip()

    def refusal(self, errors: str, source: Path, name: str) -> str:
        """The text of the CompilerError; name: of the shared object that was to be made."""
        return f"{self.words()[0]} refused a generated kernel:\n{errors[:4000]}"


def compiler() -> Compiler:
    coverage.load()
    return extended(Compiler)()


def load(name: str) -> ctypes.CDLL | None:
    """The library, or None where there is none or it is damaged."""
    found = disk().find(name)
    if found is None:
        return None
    try:
        library = ctypes.CDLL(found[0])
    except ours(OSError):
        remove_file(found[0])
        return None
    for told in LOADED:
        told(library)
    return library


def strip_comments(source: str, sign: str = "//") -> str:
    return re.sub(rf"[ \t]*{sign} [^\n]*", "", source)


def digest(*parts: object) -> str:
    """A file name for these things: a hash of their texts."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:40]


def cache_key(source: str, command: list[str]) -> str:
    """A name for what `command` makes of `source` here: another torch, compiler, flag or processor
    gives another."""
    about = compiler_version(compiler().words()), cpu_name()
    return digest(torch.__version__, *command, *about, strip_comments(source))


def compiler_command() -> list[str]:
    return [*compiler().words(), *compiler().flags()]


@functools.lru_cache(None)
def compiler_version(words: tuple[str, ...]) -> str:
    return compiler().version()


# --- the processor --------------------------------------------------------------------------------
@functools.lru_cache(None)
def cpu_flags() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo") as file:
            found = [line for line in file if line.startswith(("flags", "Features"))]  # x86, Arm
            return frozenset(found[0].split() if found else ())
    except ours(OSError):
        return frozenset()


@functools.lru_cache(None)
def cpu_name() -> str:
    return platform.machine() + digest(*sorted(cpu_flags()))


def vector_bits() -> int:
    return 512 if "avx512f" in cpu_flags() else 256


def prelude() -> str:
    return "\n".join(map(read_text, PRELUDES))


read_text = functools.cache(Path.read_text)
