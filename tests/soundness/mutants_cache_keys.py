"""Mutants of the keys: each leaves one part out, or writes one kind of value by less than it is."""

import functools
from typing import Any

import torch

from miniinductor.passes import common_subexpressions
from miniinductor.extras import graph_cache

from .mutants import mutant

QUICK = "cache_keys --modes eager"


def replaced(module: Any, name: str, value: Any) -> None:
    setattr(module, name, value)


def constant_text(*arguments: Any) -> str:
    return ""


# Every function of the key that describes something as a text, found by their names.
TEXTS = [
    name
    for name in ("compiler_text", "thread_text", "tensor_text", "graph_text", "shared_text")
    if hasattr(graph_cache, name)
]
for _name in TEXTS:
    mutant(f"key without {_name}", QUICK)(
        functools.partial(replaced, graph_cache, _name, constant_text)
    )


def without_reader(number: int) -> None:
    """The key does not look at this part of the thread's state."""
    graph_cache.THREAD = graph_cache.THREAD[:number] + graph_cache.THREAD[number + 1 :]


UNSEEN = {  # what a CPU with no transforms cannot change alone, or another part shows as well
    # it follows from the precisions of CUDA's and MKL-DNN's products, which are parts of the key,
    # and torch raises where somebody sets them apart
    torch.get_float32_matmul_precision,
    torch._C._len_torch_function_stack,
    torch._C._len_torch_dispatch_stack,
    torch.is_deterministic_algorithms_warn_only_enabled,
}
for _number, _reader in enumerate(graph_cache.THREAD):
    _plain = getattr(_reader, "func", _reader)
    _on_gpu = getattr(_reader, "args", ()) == ("cuda",)
    if _plain not in UNSEEN and not _on_gpu:
        _label = f"{_plain.__name__}{getattr(_reader, 'args', ())}"
        mutant(f"key without thread's {_label}", QUICK)(functools.partial(without_reader, _number))


def by_repr(kind: type) -> None:
    graph_cache.WRITERS[kind] = repr


for _kind in (float, complex):
    mutant(f"{_kind.__name__} by its repr", QUICK)(functools.partial(by_repr, _kind))


@mutant("subclasses by their repr", QUICK)
def subclasses_by_repr() -> None:
    exact = graph_cache.text_of

    def text_of(value):
        return repr(value) if isinstance(value, (int, str)) else exact(value)

    graph_cache.text_of = text_of


@mutant(
    "constants of common subexpressions by equality", "cache_keys --only together --modes aot_eager"
)
def common_by_equality() -> None:
    common_subexpressions.frozen = by_equality


def by_equality(value: Any) -> Any:
    """A hashable key in which numbers that are equal are one: 0.0 and -0.0."""
    if isinstance(value, (list, tuple)):
        return tuple(map(by_equality, value))
    if isinstance(value, dict):
        return tuple((name, by_equality(item)) for name, item in value.items())
    return value
