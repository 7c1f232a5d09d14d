"""The C++ compiler that the user chose, and what may go wrong with it.

In:   CXX, `config.compiler_seconds`.  Out: the command; a `Compiler` that is killed where it does
      not end, and messages that say what to do.

    CXX="ccache g++" python model.py        # read as a shell would read it
    CXX=clang++ python model.py

A compiler that does not end within `config.compiler_seconds` is killed, with the processes that it
has started.  A signal may arrive at any time, and its handler may raise: `except ours(OSError)`
catches the operating system's errors, and lets the handler's pass, of whatever class they are
(foreign.py).

C++ sources in, callable kernels out.

In:   kernel sources with NAME where the function's name goes.  Out: one callable per source.

    >>> add_1 = 'extern "C" int NAME(void** args) { ((float*)args[0])[0] += 1; return 0; }'
    >>> [kernel] = build_kernels([(add_1, "add")])
    >>> kernel(x)                   # tensors and ints
    >>> x
    tensor([2., 1., 1.])

Equal sources are compiled once.  What cannot be built raises CompilerError, on which `compile_fx`
runs the graph eagerly and records the message.  Libraries are kept on disk (disk.py), each compiled
once in the life of its folder, under a key of everything that it depends on; several are compiled
at a time.

Mirrors torch/_inductor/codecache.py and cpp_builder.py.  Left out: remote caches,
precompiled headers (the prelude has no need of them), cross compilation.

Built kernels, as functions of tensors and ints.

In:   the address of a generated function, and its library.  Out: a callable, which keeps it.

    kernel = Kernel(address, "add_0", library)
    kernel(x, y, 1024)              # their data pointers, and a size

A generated kernel is `int kernel(void** args)`: data pointers and sizes, in order; what it returns
are bits that its checks have set.  A call costs about 0.4 microseconds more than one from C.
PyTorch: writes a C++ launcher for each kernel.
"""

import ctypes
import functools
import os
import platform
import re
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch.autograd import profiler

from .. import config
from ..errors import CompilerError, ours
from .disk import cannot_write, digest, disk, remove_file

# characters.  With symbolic sizes an index can become very long: a kernel of 18 million characters
# kept g++ busy for over 20 minutes
LONGEST_SOURCE = 2_000_000
# -fno-math-errno, -fno-trapping-math: nobody reads errno or floating-point flags.
# -ffp-contract=off: `a*b + c` rounds twice, as eager does.
# -fwrapv: integer overflow wraps, as torch's does.
# -fno-thread-jumps: gcc would turn the cases of a logarithm under a maximum into branches, which
# it cannot vectorise.
# Not -ffast-math: it changes results, and linking with it sets flush-to-zero in the whole process.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fwrapv",
    "-fno-thread-jumps",
    "-shared",
    "-fPIC",
    "-w",
)


@functools.lru_cache(None)
def find_compiler(chosen: str | None) -> tuple[str, ...]:
    """The words of the compiler's command.  chosen: CXX ("ccache g++"), as a shell
    would read it.  Raises CompilerError if there is no such program, or none at all."""
    if chosen and chosen.strip():
        try:
            first, *others = shlex.split(chosen)
        except ours(ValueError) as error:
            raise CompilerError(f"CXX is {chosen!r}, which no shell can read: {error}") from error
        path = shutil.which(first)
        if path is None:
            raise CompilerError(f"CXX is {chosen!r}, and there is no program {first!r}")
        return path, *others
    for name in ("g++", "clang++"):
        path = shutil.which(name)
        if path:
            return (path,)
    raise CompilerError(
        "miniinductor needs a C++ compiler and found none: install g++ "
        "(Debian, Ubuntu: `apt install g++`; conda: `conda install gxx`) or set CXX to one"
    )


def compiler_command() -> list[str]:
    """Its words, without files.  Raises CompilerError if there is no compiler."""
    return [*Compiler().words(), *Compiler().flags()]


@functools.lru_cache(None)
def compiler_version(words: tuple[str, ...]) -> str:
    return Compiler().version()


def look_at(texts: dict[str, str]) -> None:
    """Raises CompilerError for a kernel that no compiler must be given.  texts: name -> source."""
    for name, source in texts.items():
        if len(source) > LONGEST_SOURCE:
            raise CompilerError(
                f"kernel {name} has {len(source):,} characters: its indices are too long for the "
                "C++ compiler"
            )


class Compiler:
    """What runs for one build."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen] = []
        self.end = time.monotonic() + config.compiler_seconds

    def words(self) -> tuple[str, ...]:
        """Of its command.  Raises CompilerError if it is not there."""
        return find_compiler(os.environ.get("CXX"))

    def flags(self) -> list[str]:
        """clang has its own OpenMP runtime, which does not know torch's number of threads: it gets
        one thread."""
        is_clang = any("clang" in os.path.basename(word) for word in self.words())
        flags = [*FLAGS, "-fopenmp" if config.openmp and not is_clang else "-fopenmp-simd"]
        if platform.machine() == "x86_64":
            # with a red zone, gcc 12 may keep a vector where the stack is not aligned for it: gcc's
            # bug 109780
            flags.append("-mno-red-zone")
        return [*flags, "-mprefer-vector-width=512"] if vector_bits() == 512 else flags

    def version(self) -> str:
        """What it says."""
        try:
            return self.printed(self.start([*self.words(), "-dumpfullversion", "-dumpversion"]))
        except ours(OSError) as error:
            raise CompilerError(f"cannot start {self.words()[0]}: {error.strerror}") from error
        finally:
            self.kill()

    def make(self, sources: dict[str, str]) -> None:
        """{name of a shared object: its source}: make them.  Raises CompilerError."""
        folder = disk().folder()
        try:
            with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as place:
                try:
                    self.make_in(place, sources)
                finally:
                    self.kill()
        except ours(OSError) as error:
            raise cannot_write(folder, error) from error

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
        """The command begins to run; place: where its temporary files may lie.

        It has a process group of its own, so that what it starts can be killed with it."""
        self.running.append(
            subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL if place else subprocess.PIPE,
                stderr=subprocess.PIPE if place else subprocess.DEVNULL,
                env={**os.environ, "TMPDIR": place} if place else None,
                process_group=0,
            )
        )
        return self.running[-1]

    def printed(self, process: subprocess.Popen) -> str:
        """What it prints until it ends.  Raises CompilerError if that is not in time."""
        try:
            printed, errors = process.communicate(timeout=max(0.0, self.end - time.monotonic()))
        except ours(subprocess.TimeoutExpired) as error:
            words = subprocess.list2cmdline(process.args)[:100]  # type: ignore[arg-type]
            raise CompilerError(
                f"the C++ compiler did not end within {config.compiler_seconds} seconds "
                f"(miniinductor.config.compiler_seconds) and was killed: {words}"
            ) from error
        return ((printed or b"") + (errors or b"")).decode(errors="replace").strip()

    def kill(self) -> None:
        """End what still runs, and what it has started."""
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def refusal(self, errors: str, source: Path, name: str) -> str:
        """The text of the CompilerError.  The refused source is kept, where the shared object of
        this name would have been."""
        folder = disk().folder()
        if "No space left" in errors:
            return f"the disk of {folder} is full: free space or set MINIINDUCTOR_CACHE"
        kept = os.path.join(folder, name.removesuffix(".so") + ".cpp")
        os.replace(source, kept)
        return f"{self.words()[0]} refused a generated kernel (kept as {kept}):\n{errors[:4000]}"


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


KERNELS_PER_FILE = 6
# what stands before generated kernels
HEADERS = ("prelude", "maths", "halves", "transpose", "arithmetic", "extremes", "random")
PRELUDES = [Path(__file__).parent.parent / f"codegen/cpp/{name}.h" for name in HEADERS]


def build_kernels(sources: Iterable[tuple[str, str]]) -> list[Callable[..., None]]:
    """[(source, name)] -> callables, in the same order.  Raises CompilerError if the compiler
    refuses one."""
    names: dict[str, str] = {}  # source without comments -> name of the function
    texts: dict[str, str] = {}  # name -> its source
    keys = []
    for source, name in sources:
        keys.append(strip_comments(source))
        if keys[-1] not in names:
            name = names[keys[-1]] = f"{name}_{len(names)}"
            texts[name] = source.replace("NAME(", f"{name}(", 1)
    kernels = {}
    for name, library in libraries_of(texts).items():
        address = ctypes.cast(library[name], ctypes.c_void_p).value or 0
        kernels[name] = Kernel(address, name, library)
    return [kernels[names[key]] for key in keys]


def libraries_of(texts: dict[str, str]) -> dict[str, ctypes.CDLL]:
    """The kernels in a few files, which are compiled side by side where they are not on disk."""
    look_at(texts)
    files = max(1, min(os.cpu_count() or 1, -(-len(texts) // KERNELS_PER_FILE)))
    parts = [[prelude(), *list(texts.values())[i::files]] for i in range(files)]
    libraries = build_shared_objects(["\n".join(part) for part in parts])
    return {name: libraries[number % files] for number, name in enumerate(texts)}


def build_shared_objects(sources: Sequence[str]) -> list[ctypes.CDLL]:
    """Load each source's shared object, compiling in parallel those that are not on disk."""
    command = compiler_command()
    names = [cache_key(source, command) + ".so" for source in sources]
    libraries = {name: load(name) for name in names}
    missing = {n: source for n, source in zip(names, sources) if libraries[n] is None}
    if missing:
        Compiler().make(missing)
    for name in missing:
        libraries[name] = load(name)
        if libraries[name] is None:
            raise CompilerError(f"the compiler made {name}, but it cannot be loaded")
    return [library for name in names if (library := libraries[name]) is not None]


def load(name: str) -> ctypes.CDLL | None:
    """The library, or None where there is none or it is damaged."""
    found = disk().find(name)
    if found is None:
        return None
    try:
        return ctypes.CDLL(found[0])
    except ours(OSError):
        remove_file(found[0])
        return None


def cache_key(source: str, command: list[str]) -> str:
    """A name for what `command` makes of `source` here: another torch, compiler, flag or processor
    gives another."""
    about = compiler_version(Compiler().words()), cpu_name()
    return digest(torch.__version__, *command, *about, strip_comments(source))


def prelude() -> str:
    return "\n".join(map(read_text, PRELUDES))


read_text = functools.cache(Path.read_text)


def strip_comments(source: str, sign: str = "//") -> str:
    return re.sub(rf"[ \t]*{sign} [^\n]*", "", source)


INDEX_ERROR = 1  # (in cpp_prelude.h, too)


class Kernel:
    """A generated function; call it with tensors and ints."""

    def __init__(self, address: int, name: str, library: object = None):
        self.function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(address)
        self.name, self.library = name, library

    def __call__(self, *arguments: torch.Tensor | int) -> None:
        numbers = [a if isinstance(a, int) else a.data_ptr() for a in arguments]
        pointers = struct.pack(f"{len(numbers)}q", *numbers)
        if profiler._is_profiler_enabled:  # torch.profiler shows the kernel's name
            with profiler.record_function(self.name):
                error = self.function(pointers)
        else:
            error = self.function(pointers)
        if error & INDEX_ERROR:
            raise IndexError(f"index out of range in self (in compiled kernel {self.name})")
        if error:
            raise RuntimeError(f"ZeroDivisionError (in compiled kernel {self.name})")


def empty_cpu(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """What makes a wrapper's tensors."""
    return torch.empty_strided(size, stride, dtype=dtype, device="cpu")
