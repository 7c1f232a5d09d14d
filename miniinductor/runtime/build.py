"""C++ sources in, callable kernels out.

In:   kernel sources with NAME where the function's name goes.  Out: one callable per source.

Equal sources are compiled once, and shared objects are kept on disk under a key of everything they
depend on.

    >>> add_1 = 'extern "C" int NAME(void** args) { ((float*)args[0])[0] += 1; return 0; }'
    >>> [kernel] = build_kernels([(add_1, "add")])
    >>> kernel(x)                   # tensors and ints
    >>> x
    tensor([2., 1., 1.])

On disk: `config.cache_dir/<key>.so`, written under another name and renamed, so a reader sees a
whole file or none, and two processes that build the same thing at once both end with the same one.
Each file ends with its own SHA-256: one that was cut short or damaged is never loaded (mapping a
truncated library can kill the process) and is rebuilt.  What cannot be built or written raises
CompilerError, on which `compile_fx` runs the graph eagerly and records the message.

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
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .. import config
from ..exceptions import CompilerError
from ..foreign import ours
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
        function = getattr(libraries[number % files], name)  # (ctypes never unloads a library)
        kernels[key] = LAUNCH.kernel(ctypes.cast(function, ctypes.c_void_p).value or 0, name)
    return [kernels[strip_comments(source)] for source, _ in sources]


# --- shared objects -------------------------------------------------------------------------------
def build_shared_objects(sources: Sequence[str]) -> list[Any]:
    """Load each source's shared object, compiling in parallel those that are not on disk."""
    folder = cache_folder()
    command = compiler_command()
    paths = [os.path.join(folder, cache_key(source, command) + ".so") for source in sources]
    libraries = [load(path) for path in paths]
    missing = [number for number, library in enumerate(libraries) if library is None]
    if missing:
        # The name is chosen before the folder is made, so that we can remove the folder whenever a
        # signal interrupts the build: even between its creation and the next instruction.
        place = os.path.join(folder, f"build-{os.getpid()}-{threading.get_ident()}-{next(_builds)}")
        try:
            try:
                compile_sources({paths[n]: sources[n] for n in missing}, place, command)
            finally:
                remove_folder(place)
        except BaseException:  # a signal may have interrupted remove_folder
            remove_folder(place)
            raise
    for number in missing:
        libraries[number] = load(paths[number])
        if libraries[number] is None:
            raise CompilerError(f"the compiler made {paths[number]}, but it cannot be loaded")
    return libraries


_builds = itertools.count()  # numbers of the folders in which compilers work


def compile_sources(sources: dict[str, str], place: str, command: list[str]) -> None:
    """{path of a shared object: its source}: make them, side by side, in the folder `place`."""
    running = []
    try:
        try:
            os.mkdir(place)
            for number, (path, source) in enumerate(sources.items()):
                temporary = os.path.join(place, str(number))
                with open(temporary + ".cpp", "w") as file:
                    file.write(source)
                running.append((path, temporary, start_compiler(temporary, command)))
            for path, temporary, process in running:
                _, errors = process.communicate()
                if process.returncode:
                    text = errors.decode(errors="replace")
                    raise CompilerError(compiler_message(text, command, temporary + ".cpp", path))
                sign(temporary + ".so")
                os.replace(temporary + ".so", path)
        except ours(OSError) as error:
            raise cannot_write(place, error) from error
    finally:
        for _, _, process in running:  # all have ended, unless one failed or we were interrupted
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


def remove_folder(path: str) -> None:
    """Remove a folder of files, if it is there.  (shutil.rmtree would swallow a TimeoutError of a
    signal's handler: it is an OSError, too.)"""
    try:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
    except ours(OSError):
        pass


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


def compiler_message(errors: str, command: list[str], source: str, path: str) -> str:
    """The text of the CompilerError.  The refused source is kept, where the shared object would
    have been."""
    if "No space left" in errors:
        return f"the disk of {os.path.dirname(path)} is full: free space or set MINIINDUCTOR_CACHE"
    kept = path.removesuffix(".so") + ".cpp"
    os.replace(source, kept)
    return f"{command[0]} refused a generated kernel (kept as {kept}):\n{errors[:4000]}"


def write_whole(path: str, content: bytes) -> None:
    """Put these bytes at `path`: a reader sees a whole file or none, and what interrupts it leaves
    nothing behind."""
    temporary = f"{path}.{os.getpid()}.{threading.get_ident()}"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        remove_file(temporary)
        raise


def sign(path: str) -> None:
    """Append the file's SHA-256.  (The loader ignores what follows a library's sections.)"""
    with open(path, "r+b") as file:
        digest = hashlib.sha256(file.read()).digest()
        file.write(digest)


def load(path: str) -> ctypes.CDLL | None:
    """The library, or None where there is none or it is damaged."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except ours(OSError):
        return None
    try:
        if hashlib.sha256(content[:-32]).digest() == content[-32:]:
            return ctypes.CDLL(path)
    except ours(OSError):
        pass
    remove_file(path)
    return None


def strip_comments(source: str, sign: str = "//") -> str:
    return re.sub(rf"[ \t]*{sign} [^\n]*", "", source)


def digest(*parts: object) -> str:
    """A file name for these things: a hash of their texts."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:40]


def cache_key(source: str, command: list[str]) -> str:
    """A name for what `command` makes of `source` here: another torch, compiler, flag or processor
    gives another."""
    about = compiler_version(command[0]), cpu_name()
    return digest(torch.__version__, *command, *about, strip_comments(source))


_fallback_folder: Any = None
_writable: set[str] = set()


def cache_folder() -> str:
    """config.cache_dir, or a folder of this process where that one cannot be written."""
    global _fallback_folder
    folder = config.cache_dir
    if folder in _writable and os.access(folder, os.W_OK | os.X_OK):  # (os.path catches OSError)
        return folder
    try:
        os.makedirs(folder, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            # os.access says yes to root on read-only disks
            probe = os.path.join(folder, f"probe-{os.getpid()}-{threading.get_ident()}")
            try:
                with open(probe, "wb"):
                    pass
            finally:
                remove_file(probe)
            _writable.add(folder)
            return folder
    except ours(OSError):
        pass
    if _fallback_folder is None:
        try:
            _fallback_folder = tempfile.mkdtemp(prefix="miniinductor-")
        except ours(OSError) as error:
            raise cannot_write(folder, error) from error
    return _fallback_folder


# --- the compiler ---------------------------------------------------------------------------------
def compiler_command() -> list[str]:
    compiler, flags = find_compiler(os.environ.get("CXX")), list(FLAGS)
    if platform.machine() == "x86_64":
        # with a red zone, gcc 12 may keep a vector where the stack is not aligned for it: gcc's bug
        # 109780
        flags.append("-mno-red-zone")
    # clang has its own OpenMP runtime, which does not know torch's number of threads: one thread
    has_threads = config.openmp and "clang" not in os.path.basename(compiler)
    flags.append("-fopenmp" if has_threads else "-fopenmp-simd")
    if vector_bits() == 512:
        flags.append("-mprefer-vector-width=512")
    return [compiler, *flags]


@functools.lru_cache(None)
def find_compiler(chosen: str | None) -> str:
    for name in ([chosen] if chosen else []) + ["g++", "clang++"]:
        path = shutil.which(name)
        if path:
            return path
    raise CompilerError(
        "miniinductor needs a C++ compiler and found none: install g++ "
        "(Debian, Ubuntu: `apt install g++`; conda: `conda install gxx`) or set CXX to one"
    )


@functools.lru_cache(None)
def compiler_version(path: str) -> str:
    return subprocess.run(
        [path, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True
    ).stdout.strip()


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
