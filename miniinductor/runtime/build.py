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
which `compile_fx` runs the graph eagerly and records the message; a compiler that does not end
within `config.compiler_seconds` is killed, with the processes that it has started.

A signal may arrive at any time, and its handler may raise.  `except ours(OSError)` catches the
operating system's errors, and lets the handler's pass, of whatever class they are (foreign.py).

Mirrors torch/_inductor/codecache.py and cpp_builder.py.  Left out: precompiled headers (the prelude
has no need of them), remote caches, cross compilation.
"""

import ctypes
import functools
import hashlib
import itertools
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .. import config
from ..exceptions import CompilerError
from ..foreign import ours
from .disk import cannot_write, disk, remove_file, remove_folder
from .launch import LAUNCH

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
# characters.  With symbolic sizes an index can become very long: a kernel of 18 million characters
# kept g++ busy for over 20 minutes
LONGEST_SOURCE = 2_000_000


def build_kernels(sources: Iterable[tuple[str, str]]) -> list[Callable[..., None]]:
    """[(source, name)] -> callables, in the same order.  Raises CompilerError if one is too long,
    or the compiler refuses it, or its result cannot be written."""
    sources = list(sources)
    unique: dict[str, tuple[str, str]] = {}
    for source, name in sources:
        if len(source) > LONGEST_SOURCE:
            raise CompilerError(
                f"kernel {name} has {len(source):,} characters: its indices are too long for the "
                "C++ compiler"
            )
        unique.setdefault(strip_comments(source), (source, f"{name}_{len(unique)}"))
    texts = [source.replace("NAME(", f"{name}(", 1) for source, name in unique.values()]
    files = max(1, min(os.cpu_count() or 1, -(-len(texts) // KERNELS_PER_FILE)))
    parts = [[prelude(), *texts[i::files]] for i in range(files)]
    libraries = build_shared_objects(["\n".join(part) for part in parts])
    kernels = {}
    for number, (key, (_, name)) in enumerate(unique.items()):
        library = libraries[number % files]
        address = ctypes.cast(library[name], ctypes.c_void_p).value or 0
        kernels[key] = LAUNCH.kernel(address, name, library)
    return [kernels[strip_comments(source)] for source, _ in sources]


# --- shared objects -------------------------------------------------------------------------------
def build_shared_objects(sources: Sequence[str]) -> list[Any]:
    """Load each source's shared object, compiling in parallel those that are not on disk."""
    command = compiler_command()
    names = [cache_key(source, command) + ".so" for source in sources]
    libraries = [load(name) for name in names]
    missing = [number for number, library in enumerate(libraries) if library is None]
    if missing:
        # The name is chosen before the folder is made, so that we can remove the folder whenever a
        # signal interrupts the build: even between its creation and the next instruction.
        number = f"{os.getpid()}-{threading.get_ident()}-{next(_builds)}"
        place = os.path.join(disk().folder(), f"build-{number}")
        try:
            try:
                compile_sources({names[n]: sources[n] for n in missing}, place, command)
            finally:
                remove_folder(place)
        except BaseException:  # a signal may have interrupted remove_folder
            remove_folder(place)
            raise
    for n in missing:
        libraries[n] = load(names[n])
        if libraries[n] is None:
            raise CompilerError(f"the compiler made {names[n]}, but it cannot be loaded")
    return libraries


_builds = itertools.count()  # numbers of the folders in which compilers work


def compile_sources(sources: dict[str, str], place: str, command: list[str]) -> None:
    """{name of a shared object: its source}: make them, side by side, in the folder `place`."""
    running: list[tuple[str, str, subprocess.Popen]] = []
    end = time.monotonic() + config.compiler_seconds
    try:
        try:
            os.mkdir(place, 0o700)
            for number, (name, source) in enumerate(sources.items()):
                temporary = os.path.join(place, str(number))
                with open(temporary + ".cpp", "w") as file:
                    file.write(source)
                running.append((name, temporary, start_compiler(temporary, command)))
            for name, temporary, process in running:
                errors = output_of(process, end)
                if process.returncode:
                    raise CompilerError(compiler_message(errors, command, temporary + ".cpp", name))
                with open(temporary + ".so", "rb") as file:
                    disk().write(name, file.read())
        except ours(OSError) as error:
            raise cannot_write(place, error) from error
    finally:
        for _, _, process in running:
            kill(process)


def output_of(process: subprocess.Popen, end: float) -> str:
    """What it prints until it ends.  Raises CompilerError if it has not at the time `end`."""
    try:
        printed, errors = process.communicate(timeout=max(0.0, end - time.monotonic()))
    except ours(subprocess.TimeoutExpired) as error:
        words = subprocess.list2cmdline(process.args)[:100]  # type: ignore[arg-type]
        raise CompilerError(
            f"the C++ compiler did not end within {config.compiler_seconds} seconds "
            f"(miniinductor.config.compiler_seconds) and was killed: {words}"
        ) from error
    return ((printed or b"") + (errors or b"")).decode(errors="replace")


def kill(process: subprocess.Popen) -> None:
    """End it, and what it has started, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def start_compiler(temporary: str, command: list[str]) -> subprocess.Popen:
    """The compiler, in a process group of its own, so that the processes it starts can be killed
    with it.  Their temporary files lie beside the result."""
    return subprocess.Popen(
        [*command, temporary + ".cpp", "-o", temporary + ".so", "-lm"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": os.path.dirname(temporary)},
        process_group=0,
    )


def compiler_message(errors: str, command: list[str], source: str, name: str) -> str:
    """The text of the CompilerError.  The refused source is kept, where the shared object would
    have been."""
    folder = disk().folder()
    if "No space left" in errors:
        return f"the disk of {folder} is full: free space or set MINIINDUCTOR_CACHE"
    kept = os.path.join(folder, name.removesuffix(".so") + ".cpp")
    os.replace(source, kept)
    return f"{command[0]} refused a generated kernel (kept as {kept}):\n{errors[:4000]}"


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
    about = compiler_version(find_compiler(os.environ.get("CXX"))), cpu_name()
    return digest(torch.__version__, *command, *about, strip_comments(source))


# --- the compiler ---------------------------------------------------------------------------------
def compiler_command() -> list[str]:
    compiler = find_compiler(os.environ.get("CXX"))
    return [*compiler, *compiler_flags(compiler)]


def compiler_flags(compiler: Sequence[str]) -> list[str]:
    flags = list(FLAGS)
    if platform.machine() == "x86_64":
        # with a red zone, gcc 12 may keep a vector where the stack is not aligned for it: gcc's bug
        # 109780
        flags.append("-mno-red-zone")
    # clang has its own OpenMP runtime, which does not know torch's number of threads: one thread
    is_clang = any("clang" in os.path.basename(word) for word in compiler)
    flags.append("-fopenmp" if config.openmp and not is_clang else "-fopenmp-simd")
    if vector_bits() == 512:
        flags.append("-mprefer-vector-width=512")
    return flags


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


@functools.lru_cache(None)
def compiler_version(compiler: tuple[str, ...]) -> str:
    """What it says.  Raises CompilerError if it cannot be started, or does not end."""
    try:
        process = subprocess.Popen(
            [*compiler, "-dumpfullversion", "-dumpversion"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
    except ours(OSError) as error:
        raise CompilerError(f"cannot start {compiler[0]}: {error.strerror}") from error
    try:
        return output_of(process, time.monotonic() + config.compiler_seconds).strip()
    finally:
        kill(process)


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
