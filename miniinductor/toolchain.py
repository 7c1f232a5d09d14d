"""C++ sources in, callable kernels out; what was built is kept on disk.

In:   kernel sources with NAME where the function's name goes.  Out: one callable per source, which
      takes tensors and ints.

    >>> add_1 = 'extern "C" int NAME(void** args) { ((float*)args[0])[0] += 1; return 0; }'
    >>> [kernel] = build_kernels([(add_1, "add")])
    >>> kernel(x)
    >>> x
    tensor([2., 1., 1.])

CXX names the compiler, as a shell would read it: `CXX="ccache g++" python model.py`.  One that does
not end within `config.compiler_seconds` is killed, with the processes that it has started.  What
cannot be built raises CompilerError, which says what to do; `compile_fx` then runs the graph
eagerly and records the message.  (A signal may arrive at any time, and its handler may raise:
`except ours(OSError)` catches the operating system's errors, and lets the handler's pass.)

Equal sources are compiled once; several are compiled at a time.  Libraries are kept in files of
`config.cache_dir`, under a key of everything that they depend on.

    >>> disk().write("greeting", b"hello")
    >>> disk().read("greeting")
    b'hello'

A file is written under another name and renamed, so a reader sees a whole file or none, and two
processes that write the same thing at once both end with the same one.  It ends with a seal, its
SHA-256: one that was cut short or damaged is not there, and is made again.  A folder that others
could have written, or that cannot be written, is not used: a temporary one takes its place.

A generated kernel is `int kernel(void** args)`: data pointers and sizes, in order; what it returns
are bits that its checks have set.  A call costs about 0.4 microseconds more than one from C.

Mirrors torch/_inductor/codecache.py and cpp_builder.py.  Left out: remote caches, a limit of the
folder's size, precompiled headers (the prelude has no need of them), cross compilation, a launcher
in C++ for each kernel.
"""

import atexit
import ctypes
import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch.autograd import profiler

from . import config
from .devices import cpu_flags, e4m3_most, vector_bits
from .errors import CompilerError, ours
from .records import LOG

# characters.  With symbolic sizes an index can become very long: a kernel of 18 million characters
# kept g++ busy for over 20 minutes
LONGEST_SOURCE = 2_000_000
# -fno-math-errno, -fno-trapping-math: nobody reads errno or floating-point flags.
# -ffp-contract=off: `a*b + c` rounds twice, as eager does.
# -fwrapv: integer overflow wraps, as torch's does.
# -fno-thread-jumps: gcc would turn the cases of a logarithm under a maximum into branches, which
# it cannot vectorise.
# -fno-builtin-sin, -cos: gcc would make one call of sincos of both, which has no vectors.
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
    "-fno-builtin-sin",
    "-fno-builtin-sinf",
    "-fno-builtin-cos",
    "-fno-builtin-cosf",
    "-shared",
    "-fPIC",
    "-w",
)


@functools.cache
def find_compiler(chosen: str | None) -> tuple[str, ...]:
    """The words of the compiler's command.  chosen: CXX ("ccache g++"), as a shell would read it.
    Raises CompilerError if there is no such program, or none at all."""
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
    """The command of the C++ compiler, without files.  Raises CompilerError if there is none.

    clang has its own OpenMP runtime, which does not know torch's number of threads: it gets one
    thread."""
    words = find_compiler(os.environ.get("CXX"))
    is_clang = any("clang" in os.path.basename(word) for word in words)
    flags = [*FLAGS, "-fopenmp" if config.openmp and not is_clang else "-fopenmp-simd"]
    flags.append(f"-DE4M3_MOST={e4m3_most()}f")
    if platform.machine() == "x86_64":
        # with a red zone, gcc 12 may keep a vector where the stack is not aligned for it: gcc's
        # bug 109780.  What a kernel lacks (SLEEF's functions, see prelude.h) the loader shall look
        # for in torch's library: to link against that takes half a second
        flags += ["-mno-red-zone", "-Wl,--auxiliary=libtorch_cpu.so"]
    if vector_bits() == 512:
        flags.append("-mprefer-vector-width=512")
    return [*words, *flags]


@functools.cache
def compiler_version(words: tuple[str, ...]) -> str:
    """What the compiler says of its version."""
    try:
        [(_, printed)] = run_all([[*words, "-dumpfullversion", "-dumpversion"]])
    except ours(OSError) as error:
        raise CompilerError(f"cannot start {words[0]}: {error.strerror}") from error
    return printed


def run_all(commands: list[list[str]], folder: str | None = None) -> list[tuple[int, str]]:
    """Run these side by side: (exit status, what it has printed) of each.  Raises CompilerError if
    one does not end in time.  folder: for their temporary files.

    Each has a process group of its own, so that what it starts can be killed with it."""
    end = time.monotonic() + config.compiler_seconds
    running: list[subprocess.Popen] = []
    results = []
    try:
        for command in commands:
            running.append(
                subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "TMPDIR": folder} if folder else None,
                    process_group=0,
                )
            )
        for process in running:
            printed, _ = process.communicate(timeout=max(0.0, end - time.monotonic()))
            results.append((process.returncode, printed.decode(errors="replace").strip()))
    except ours(subprocess.TimeoutExpired) as error:
        words = subprocess.list2cmdline(commands[len(results)])[:100]
        raise CompilerError(
            f"the C++ compiler did not end within {config.compiler_seconds} seconds "
            f"(miniinductor.config.compiler_seconds) and was killed: {words}"
        ) from error
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return results


def make(sources: dict[str, str]) -> None:
    """{name of a shared object: its source}: make them, and keep them on disk.  Raises
    CompilerError."""
    folder, command = disk().folder(), compiler_command()
    try:
        with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as place:
            paths = [Path(place, f"{number}.cpp") for number in range(len(sources))]
            for path, source in zip(paths, sources.values()):
                path.write_text(source)
            files = [[str(p), "-o", str(p.with_suffix(".so")), "-lm"] for p in paths]
            results = run_all([[*command, *names] for names in files], place)
            for name, path, (failed, printed) in zip(sources, paths, results):
                if failed:
                    raise CompilerError(refusal(printed, path, name, command[0]))
                disk().write(name, path.with_suffix(".so").read_bytes())
    except ours(OSError) as error:
        raise cannot_write(folder, error) from error


def refusal(errors: str, source: Path, name: str, compiler: str) -> str:
    """The text of the CompilerError.  The refused source is kept, where the shared object of this
    name would have been."""
    folder = disk().folder()
    if "No space left" in errors:
        return f"the disk of {folder} is full: free space or set MINIINDUCTOR_CACHE"
    kept = os.path.join(folder, name.removesuffix(".so") + ".cpp")
    os.replace(source, kept)
    return f"{compiler} refused a generated kernel (kept as {kept}):\n{errors[:4000]}"


KERNELS_PER_FILE = 6
HEADERS = [Path(__file__).parent / f"codegen/cpp/{name}.h" for name in ("prelude", "maths")]


def build_kernels(sources: Iterable[tuple[str, str]]) -> list[Callable[..., None]]:
    """[(source, name)] -> callables, in the same order.  Raises CompilerError if the compiler
    refuses one."""
    names: dict[str, str] = {}  # source without comments -> name of the function
    texts: dict[str, str] = {}  # name -> its source
    keys = []
    for source, name in sources:
        if len(source) > LONGEST_SOURCE:
            raise CompilerError(
                f"kernel {name} has {len(source):,} characters: its indices are too long for the "
                "C++ compiler"
            )
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
    """{name of a kernel: the library with it}: they lie in a few files, which are compiled side by
    side where they are not on disk."""
    files = max(1, min(os.cpu_count() or 1, -(-len(texts) // KERNELS_PER_FILE)))
    command = compiler_command()
    sources = {}
    for n in range(files):
        source = "\n".join([prelude(), *list(texts.values())[n::files]])
        sources[cache_key(source, command) + ".so"] = source
    libraries = {name: load(name) for name in sources}
    missing = {name: source for name, source in sources.items() if libraries[name] is None}
    if missing:
        make(missing)
    for name in missing:
        libraries[name] = load(name)
        if libraries[name] is None:
            raise CompilerError(f"the compiler made {name}, but it cannot be loaded")
    loaded = list(libraries.values())
    return {name: loaded[n % files] for n, name in enumerate(texts)}  # type: ignore[misc]


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
    """A file name for what `command` makes of `source`.  It depends on torch, the compiler, the
    flags and the processor, too."""
    about = compiler_version(find_compiler(os.environ.get("CXX"))), platform.machine(), *cpu_flags()
    return digest(torch.__version__, *command, *about, strip_comments(source))


def prelude() -> str:
    return "\n".join(map(read_text, HEADERS))


read_text = functools.cache(Path.read_text)


def strip_comments(source: str, sign: str = "//") -> str:
    return re.sub(rf"(?m)^[ \t]*{sign} [^\n]*\n|[ \t]*{sign} [^\n]*", "", source)


INDEX_ERROR = 1  # (in prelude.h, too)


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


# --- kept on disk --------------------------------------------------------------------------------
SEAL = 32  # bytes at the end of a file


class Disk:
    """The folder of kept files."""

    def folder(self) -> str:
        """config.cache_dir, which is made if need be; or a folder of this process alone."""
        folder = config.cache_dir
        try:
            if folder:
                os.makedirs(folder, mode=0o700, exist_ok=True)
                if is_ours(os.stat(folder)) and os.access(folder, os.W_OK | os.X_OK):
                    return folder
        except ours(OSError):
            pass
        return temporary_folder(os.getpid())

    def find(self, name: str) -> tuple[str, bytes] | None:
        """The path of the finished file of this name, and its bytes."""
        path = os.path.join(self.folder(), name)
        try:
            found = os.stat(path)
            if not (stat.S_ISREG(found.st_mode) and is_ours(found)):
                return None
            with open(path, "rb") as file:
                content = file.read()
        except ours(OSError):
            return None
        is_whole = hashlib.sha256(content[:-SEAL]).digest() == content[-SEAL:]
        return (path, content[:-SEAL]) if is_whole else None

    def read(self, name: str) -> bytes | None:
        found = self.find(name)
        return found and found[1]

    def write(self, name: str, content: bytes) -> None:
        """Keep it.  Raises OSError."""
        content += hashlib.sha256(content).digest()
        write_whole(os.path.join(self.folder(), name), content)


def is_ours(found: os.stat_result) -> bool:
    """This user's, and nobody else may write it?  What is kept here is run."""
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@functools.cache
def disk() -> Disk:
    return Disk()


@functools.cache
def temporary_folder(process: int) -> str:
    """A folder of the process of this number, which removes it when it ends; said once.  Raises
    CompilerError."""
    try:
        folder = tempfile.mkdtemp(prefix="miniinductor-")
    except ours(OSError) as error:
        raise cannot_write(tempfile.gettempdir(), error) from error
    if config.cache_dir:
        LOG.warning(
            "compiled kernels are not kept in %s, which this user alone must be able to write; "
            "set MINIINDUCTOR_CACHE to another folder",
            config.cache_dir,
        )
    atexit.register(remove_folder, folder, process)
    return folder


def remove_folder(folder: str, process: int) -> None:
    """Remove it, if this is the process of this number."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def write_whole(path: str, content: bytes) -> None:
    """Put these bytes at `path`, for this user alone: a reader sees a whole file or none, and what
    interrupts it leaves nothing behind."""
    temporary = f"{path}.{os.getpid()}.{threading.get_ident()}"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        remove_file(temporary)
        raise


def digest(*parts: object) -> str:
    """A file name for these things: a hash of their texts."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:40]


def remove_file(path: str) -> None:
    """Remove a file, if it is there."""
    try:
        os.unlink(path)
    except ours(OSError):
        pass


def cannot_write(path: str, error: OSError) -> CompilerError:
    return CompilerError(
        f"cannot write {path}: {error.strerror}; free space or set MINIINDUCTOR_CACHE to another "
        "folder"
    )
