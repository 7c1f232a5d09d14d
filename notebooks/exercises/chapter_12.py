"""Checks of notebook 12: Triton kernels, in Triton's interpreter (TRITON_INTERPRET=1 before
triton is imported)."""

import torch

from . import close, exercise, row


@exercise("12.1", "the neutral element")
def _(answer):
    def top(x):
        out = torch.full((len(x),), float("nan"))
        answer[(len(x),)](x, out, x.shape[1], BLOCK=1 << (x.shape[1] - 1).bit_length())
        if out.isnan().all():
            raise NotImplementedError("the kernel stored nothing: your turn")
        return out

    for name, x in (
        ("a full tile", torch.randn(4, 64)),
        ("negative numbers, 1000 columns", -torch.rand(4, 1000) - 1),
        ("minus infinity only", torch.full((2, 3), -torch.inf)),
        ("one column", torch.randn(5, 1)),
    ):
        yield row(name, lambda x=x: top(x), x.amax(1), same=close)


def gelu(p):
    return 0.5 * p * (1 + torch.erf(p * 0.7071067811865476))


@exercise("12.2", "an epilogue in Triton")
def _(answer):
    import minidynamo
    from miniinductor.codegen.triton.build import source_file
    from miniinductor.codegen.triton.interpreter import load_interpreted
    from miniinductor.ir.loops import ComputedBuffer, ExternKernel
    from miniinductor.ir.ops import OpsHandler
    from miniinductor.ir.handlers import trace
    from miniinductor.lowering import lower_graph
    from miniinductor.records import CompileRecord

    handler_class, template = answer
    written = [
        m for m in ("load", "store") if getattr(handler_class, m) is not getattr(OpsHandler, m)
    ]
    sources = []

    def fused(function, a, b, *others):
        """The real graph of function(a, b, *others), its epilogue inside the product's kernel."""
        if len(written) < 2:
            raise NotImplementedError("load and store are your turn")
        with torch.no_grad():
            record = minidynamo.explain(function)(a, b, *others).main.compiled
        graph = lower_graph(record.functional_graph, CompileRecord(), ())
        [product] = [o for o in graph.operations if isinstance(o, ExternKernel)]
        [after] = [o for o in graph.operations if isinstance(o, ComputedBuffer)]
        handler = handler_class(product.name)
        trace(after).play(handler)
        pointers = ["a", "b", *handler.pointers, "out"]
        source = template.replace("POINTERS", ", ".join(pointers)).replace(
            "    EPILOGUE\n", "".join(f"    {line}\n" for line in handler.lines)
        )
        sources.append(source)
        kernel, (m, k), n, tile = (
            load_interpreted(source_file(source), "matmul"),
            a.shape,
            b.shape[1],
            16,
        )
        out = torch.full((m, n), float("nan"))
        named = dict(zip(graph.inputs, (a, b, *others)))
        for name in handler.pointers:
            if name == product.name:
                raise AssertionError(f"{name} is the product, which is `acc` in this kernel")
            if name not in named:
                raise AssertionError(f"{name} is the result: the template calls it `out`")
        kernel[(-(-m // tile), -(-n // tile))](
            a, b, *[named[p] for p in handler.pointers], out, m, n, k, TILE=tile
        )
        return out

    a, b, bias, residual = (
        torch.randn(40, 32),
        torch.randn(32, 48),
        torch.randn(48),
        torch.randn(40, 48),
    )
    cases = (
        ("relu(a @ b)", lambda a, b: torch.relu(a @ b), (a, b)),
        (
            "gelu(a @ b + bias): a row is broadcast",
            lambda a, b, bias: gelu(a @ b + bias),
            (a, b, bias),
        ),
        (
            "(a @ b) * sigmoid(a @ b) + residual",
            lambda a, b, r: (p := a @ b) * torch.sigmoid(p) + r,
            (a, b, residual),
        ),
        (
            "a product that fills no tile",
            lambda a, b, bias: gelu(a @ b + bias),
            (a[:37, :30].clone(), b[:30, :41].clone(), bias[:41].clone()),
        ),
    )
    for name, function, arguments in cases:
        yield row(name, lambda: fused(function, *arguments), function(*arguments), same=close)
    yield row(
        "the product itself is neither stored nor read",
        lambda: [s.count("tl.store(") for s in sources] == [1] * len(cases),
        after=True,
    )


KERNEL = """import triton
import triton.language as tl


@triton.jit
def pairs(source, top, total, columns, BLOCK: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(source + row * columns + k, mask=k < columns, other=float("-inf"))
    m, s = tl.reduce((values, tl.where(values == float("-inf"), 0.0, 1.0)), 0, merge)
    tl.store(top + row, m)
    tl.store(total + row, s)
"""


@exercise("12.3", "merging two softmaxes")
def _(answer):
    from miniinductor.codegen.triton.build import source_file
    from miniinductor.codegen.triton.interpreter import load_interpreted

    def pairs(x):
        kernel = load_interpreted(source_file(KERNEL), "pairs")
        kernel.function.fn.__globals__["merge"] = answer
        top, total = torch.full((len(x),), float("nan")), torch.full((len(x),), float("nan"))
        try:
            kernel[(len(x),)](x, top, total, x.shape[1], BLOCK=1 << (x.shape[1] - 1).bit_length())
        except Exception as error:
            if "NoneType" in str(error):
                raise NotImplementedError("merge gives nothing back: your turn") from error
            raise
        return top, total

    def expected(x):
        top = x.amax(1)
        return top, torch.exp(x - top.nan_to_num(neginf=0)[:, None]).sum(1)

    large = torch.randn(4, 1000) * 40 + 100
    holes = torch.randn(3, 64)
    holes[0, ::2], holes[1] = -torch.inf, -torch.inf
    for name, x in (
        ("small numbers", torch.randn(4, 64)),
        ("large numbers: exp alone would overflow", large),
        ("minus infinity", holes),
    ):
        yield row(name, lambda x=x: pairs(x), expected(x), same=close)
    yield row(
        "the logarithm of a sum of exponentials",
        lambda: (lambda m, s: m + torch.log(s))(*pairs(large)),
        torch.logsumexp(large, 1),
        same=close,
    )


@exercise("12.4", "sectors of a warp", level="core")
def _(answer):
    lanes = range(32)
    yield row("neighbours, float32", lambda: answer([4 * n for n in lanes], 4), 4)
    yield row("a column of a wide matrix", lambda: answer([4096 * n for n in lanes], 4), 32)
    yield row("all lanes read one number", lambda: answer([64] * 32, 4), 1)
    yield row("shifted by 16 bytes", lambda: answer([16 + 4 * n for n in lanes], 4), 5)
    masked = [4 * n if n < 8 else None for n in lanes]
    yield row("a mask: eight lanes are left", lambda: answer(masked, 4), 1)
    yield row("16 bytes a lane, across the border", lambda: answer([24, 56], 16), 3)
