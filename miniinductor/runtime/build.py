"""C++ sources in, callable kernels out.

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
"""

import ctypes
import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch

from .. import coverage
from ..exceptions import CompilerError
from ..foreign import ours
from .compiler import Compiler, compiler_command, compiler_version, cpu_name, look_at
from .disk import digest, disk, remove_file
from .launch import Kernel

KERNELS_PER_FILE = 6
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
