"""--suite dynamic-kernels: what symbolic sizes cost at run time: the same function compiled with
dynamic=False and dynamic=True, on the CPU.

Both compiled graphs are called in turn, without their guards; the ratio is the median over pairs,
with quartiles.  Where a symbol costs more than 5%, the row says why (`REASONS`); `hint` is then the
same dynamic kernel with one more copy of its body for the length of this run, which shows how much
of it is the constant.
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

import minidynamo
import miniinductor
from miniinductor.records import CompileRecord
from miniinductor.runtime.build import build_kernels

from ..runner import interleave, ratio
from .common import Options, Row, suite, wanted

REASONS = {  # beginning of a row's name -> why a symbol costs something there
    "short rows": "the C++ compiler unrolls a row of constant length; here every row pays for "
    "loops that may end anywhere, and for sums in chunks",
    "small": "the sizes are two more numbers to pass through Python and the launcher: half a "
    "microsecond, whatever the kernel does",
    "layer norm over a symbolic size": "sums in chunks of 512 with a double between them, for rows "
    "of any length",
}
WEIGHT, BIAS = torch.ones(768), torch.zeros(768)
WORKLOADS: dict[str, tuple[Callable, list[tuple[int, ...]]]] = {
    "gelu(x)*y + sigmoid(x), 512x768": (lambda x, y: F.gelu(x) * y + x.sigmoid(), [(512, 768)] * 2),
    "x + 2*y, 2048x1024": (lambda x, y: x + y * 2, [(2048, 1024)] * 2),
    "gelu(x + bias), 512x768": (lambda x: F.gelu(x + BIAS), [(512, 768)]),
    "softmax, 1024x512": (lambda x: torch.softmax(x, -1), [(1024, 512)]),
    "log softmax, 256x5000": (lambda x: torch.log_softmax(x, -1), [(256, 5000)]),
    "layer norm, 512x768": (lambda x: F.layer_norm(x, (768,), WEIGHT, BIAS), [(512, 768)]),
    "layer norm over a symbolic size": (lambda x: F.layer_norm(x, (x.shape[-1],)), [(512, 768)]),
    "sum over rows, 1024x1000": (lambda x: x.sum(0), [(1024, 1000)]),
    "transpose, 1024x1000": (lambda x: x.t() + 1.0, [(1024, 1000)]),
    "short rows: softmax, 12288x128": (lambda x: torch.softmax(x, -1), [(12288, 128)]),
    "short rows: softmax, 4096x37": (lambda x: torch.softmax(x, -1), [(4096, 37)]),
    "small: gelu(x)*y, 16x64": (lambda x, y: F.gelu(x) * y, [(16, 64)] * 2),
}


def compiled_graph(function: Callable, inputs: list[torch.Tensor], dynamic: bool) -> list[Any]:
    """(the compiled graph, what the compiled frame passes to it, its record)."""
    found: list[Any] = []

    def backend(gm, examples):
        compiled = miniinductor.compile_fx(gm, examples)

        def run(*arguments):
            found[:] = compiled.function, arguments, compiled.record
            return compiled(*arguments)

        return run

    minidynamo.reset()
    minidynamo.compile(function, backend=backend, dynamic=dynamic)(*inputs)
    return found


def with_a_copy_for(source: str, lengths: Sequence[int]) -> str:
    """The kernel with a second copy of its body in which the last size is the number it is in this
    run."""
    symbol, place = re.findall(r"const int64_t (s\d+) = \(int64_t\)args\[(\d+)\];", source)[-1]
    source = source.replace(
        'extern "C" int NAME(',
        "template <int64_t known> static inline __attribute__((always_inline)) int body(",
    )
    source = source.replace(
        f"{symbol} = (int64_t)args[{place}];", f"{symbol} = known ? known : (int64_t)args[{place}];"
    )
    n = lengths[-1]
    chosen = f"(int64_t)args[{place}] == {n} ? body<{n}>(args) : body<0>(args)"
    return f'{source}\nextern "C" int NAME(void** args) {{ return {chosen}; }}\n'


def time_with_a_copy(record: CompileRecord, inputs: list[torch.Tensor], static: Callable) -> float:
    """Ratio to the static kernel of the dynamic one with a copy for this length: kernels alone,
    called in turn."""
    [kernel], out = record.kernels, torch.empty_like(inputs[0])
    [copy] = build_kernels(
        [
            (
                with_a_copy_for(kernel.source.replace(kernel.name + "(", "NAME("), inputs[0].shape),
                "copy",
            )
        ]
    )
    timings = interleave(
        {"static": static, "copy": lambda: copy(*inputs, out, *inputs[0].shape)}, budget=1.0
    )
    return ratio(timings, "copy", "static")[0]


@suite("dynamic-kernels")
def dynamic_kernels(options: Options, result: Row) -> Iterator[Row]:
    """Dynamic against static kernels."""
    for name, (function, shapes) in WORKLOADS.items():
        if not wanted(name, options):
            continue
        with torch.no_grad():
            inputs = [torch.randn(shape) for shape in shapes]
            found = {
                label: compiled_graph(function, inputs, label == "dynamic")
                for label in ("static", "dynamic")
            }
            calls = {
                label: functools.partial(graph, *arguments)
                for label, (graph, arguments, _) in found.items()
            }
            timings = interleave(calls, budget=1.0, rounds=(15, 60))
        middle, low, high = ratio(timings, "dynamic", "static")
        static, dynamic = (1e6 * timings[label].median for label in calls)
        row = {
            "name": name,
            "static_us": static,
            "dynamic_us": dynamic,
            "ratio": middle,
            "quartiles": [low, high],
        }
        print(
            f"{name:36} static {static:8.1f} us  dynamic {dynamic:8.1f} us  ratio {middle:.3f} ["
            f"{low:.3f} {high:.3f}]",
            flush=True,
        )
        if middle > 1.05:
            row["reason"] = next(
                (text for start, text in REASONS.items() if name.startswith(start)),
                "no reason known",
            )
            if name.startswith("short rows"):
                row["hint"] = time_with_a_copy(found["dynamic"][2], inputs, calls["static"])
            print(
                f"        {row['reason']}"
                + (f" (hint: {row['hint']:.3f})" if "hint" in row else ""),
                flush=True,
            )
        yield row
