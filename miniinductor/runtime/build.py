"""C++ sources in, callable kernels out.

In:   kernel sources with NAME where the function's name goes.  Out: one callable per source.

    >>> add_1 = 'extern "C" int NAME(void** args) { ((float*)args[0])[0] += 1; return 0; }'
    >>> [kernel] = build_kernels([(add_1, "add")])
    >>> kernel(x)                   # tensors and ints
    >>> x
    tensor([2., 1., 1.])

Equal sources are compiled once.  What cannot be built raises CompilerError, on which `compile_fx`
runs the graph eagerly and records the message.  Here g++ compiles all of them as one file, anew in
each process; extras/kept_libraries.py keeps libraries on disk and compiles several files at a time,
extras/careful_compiler.py takes the compiler that CXX names, and does not wait for ever.

Mirrors torch/_inductor/codecache.py and cpp_builder.py.  Left out: precompiled headers (the prelude
has no need of them), cross compilation.
"""

import ctypes
import functools
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from .. import config, coverage
from ..exceptions import CompilerError
from ..replaceable import replaceable
from .launch import Kernel

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
# what stands before generated kernels
HERE = Path(__file__).parent.parent
PRELUDES = [HERE / f"codegen/cpp_{name}.h" for name in ("prelude", "maths", "halves", "transpose")]
PRELUDES += [HERE / f"lowerings/{name}.h" for name in ("arithmetic", "extremes", "random")]


def build_kernels(sources: Iterable[tuple[str, str]]) -> list[Callable[..., None]]:
    """[(source, name)] -> callables, in the same order.  Raises CompilerError if the compiler
    refuses one."""
    coverage.load()
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


@replaceable
def libraries_of(texts: dict[str, str]) -> dict[str, ctypes.CDLL]:
    """{name of a kernel: its source} -> {the name: a library that has it}."""
    with tempfile.TemporaryDirectory() as place:
        source, library = Path(place, "kernels.cpp"), Path(place, "kernels.so")
        source.write_text("\n".join([prelude(), *texts.values()]))
        command = [*compiler_command(), str(source), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise CompilerError(f"{command[0]} refused a generated kernel:\n{done.stderr[:4000]}")
        return dict.fromkeys(texts, ctypes.CDLL(str(library)))


@replaceable
def compiler_command() -> list[str]:
    """Its words, without files.  Raises CompilerError if there is no compiler."""
    path = shutil.which("g++")
    if path is None:
        raise CompilerError("miniinductor needs a C++ compiler and found no g++")
    return [path, *compiler_flags()]


def compiler_flags() -> list[str]:
    # with a red zone, gcc 12 may keep a vector where the stack is not aligned for it: gcc's bug
    # 109780
    of_machine = ["-mno-red-zone"] if platform.machine() == "x86_64" else []
    return [*FLAGS, *of_machine, "-fopenmp" if config.openmp else "-fopenmp-simd"]


def prelude() -> str:
    return "\n".join(map(read_text, PRELUDES))


read_text = functools.cache(Path.read_text)


def strip_comments(source: str, sign: str = "//") -> str:
    return re.sub(rf"[ \t]*{sign} [^\n]*", "", source)
