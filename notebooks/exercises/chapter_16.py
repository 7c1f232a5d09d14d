"""Checks of notebook 16: training and generating with a small GPT."""

import copy
import functools

import torch
import torch.nn.functional as F

from . import close, exercise, row

LETTERS, CONTEXT = 11, 16


def letters(seed, size=4):
    x = torch.randint(LETTERS, (size, CONTEXT + 1), generator=torch.Generator().manual_seed(seed))
    return x[:, :-1].clone(), x[:, 1:].clone()


def small(GPT, **options):
    torch.manual_seed(0)
    return GPT(LETTERS, width=32, heads=2, layers=1, context=CONTEXT, **options)


def compiled_graphs():
    import minidynamo

    return dict(minidynamo.counters["graphs"]), sum(minidynamo.counters["graph_breaks"].values())


@exercise("16.1", "another feed-forward part")
def _(answer):
    import minidynamo

    SwiGLU, GPT = answer

    def formula(module, x):
        return (
            F.silu(x @ module.gate.weight.t()) * (x @ module.up.weight.t())
        ) @ module.down.weight.t()

    x = torch.randn(3, 24)
    yield row("what it computes", lambda: (lambda m: close(m(x), formula(m, x)))(SwiGLU(24)))
    yield row("the hidden width", lambda: tuple(SwiGLU(24).down.weight.shape), (24, 64))
    yield row("... of a width of 25", lambda: tuple(SwiGLU(25).down.weight.shape), (25, 66))
    yield row("no biases", lambda: len(list(SwiGLU(24).parameters())), 3)

    def gradients():
        eager, inputs = small(GPT, feed_forward=SwiGLU), letters(0)
        other = copy.deepcopy(eager)
        minidynamo.reset()
        if not any(isinstance(module, SwiGLU) for module in eager.modules()):
            raise AssertionError("no SwiGLU in the model")
        eager(*inputs).backward()
        minidynamo.compile(other)(*inputs).backward()
        return (
            all(
                close(a.grad, b.grad)
                for a, b in zip(eager.parameters(), other.parameters(), strict=True)
            )
            and compiled_graphs()[1] == 0
        )

    yield row("in a GPT: gradients as in eager mode, no graph break", gradients)

    def between():
        with torch.no_grad():
            record = minidynamo.explain(SwiGLU(24))(x).main.compiled
        return len(record.kernels), len(record.fallbacks)

    yield row("one kernel between three products", between, (1, 3))


@exercise("16.2", "a step without recompilations")
def _(answer):
    import minidynamo

    make_step, GPT = answer
    rates = [1e-2 * (n % 5 + 1) for n in range(12)]

    def trained(make):
        """The losses, the kinds of learning rates, the graphs of each function, the breaks, the
        losses that still have a history."""
        made, attached, original = [], [], torch.optim.AdamW.__init__

        def noted(self, *args, **kwargs):
            original(self, *args, **kwargs)
            made.append(self)

        minidynamo.reset()
        model = small(GPT)
        torch.optim.AdamW.__init__ = noted
        try:
            step = make(model, list(rates))
            losses = []
            for n in range(len(rates)):
                loss = step(*letters(n % 3))
                attached += [loss] if loss.requires_grad else []
                losses.append(loss.item())
        finally:
            torch.optim.AdamW.__init__ = original
        kinds = {type(group["lr"]).__name__ for each in made for group in each.param_groups}
        graphs, breaks = compiled_graphs()
        return losses, kinds, sorted(graphs.values()), breaks, len(attached)

    def by_hand(model, rates):
        optimizer, rates = (
            torch.optim.AdamW(model.parameters(), lr=torch.tensor(rates[0])),
            iter(rates),
        )

        def step(x, y):
            optimizer.param_groups[0]["lr"].fill_(next(rates))
            optimizer.zero_grad()
            loss = model(x, y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    yours = functools.cache(lambda: trained(make_step))
    yield row("the learning rate is a tensor", lambda: yours()[1], {"Tensor"})
    yield row(
        "the losses of eager training",
        lambda: torch.tensor(yours()[0]),
        torch.tensor(trained(by_hand)[0]),
        same=lambda a, b: torch.allclose(a, b, rtol=1e-2, atol=1e-3),
    )
    yield row("no graph breaks", lambda: yours()[3], 0)
    yield row("no loss holds the graph of its step", lambda: yours()[4], 0)
    yield row("one graph of the model and one of the optimizer", lambda: yours()[2], [1, 1])


@exercise("16.3", "generate with one graph")
def _(answer):
    import minidynamo

    continue_text, GPT = answer
    model = small(GPT).eval()

    def eager(known, length):
        known = list(known)
        for _ in range(length):
            with torch.no_grad():
                known.append(model(torch.tensor([known[-CONTEXT:]]))[0, -1].argmax().item())
        return known

    def ours(known, length):
        minidynamo.reset()
        return list(continue_text(model, known, length))

    yield row("five numbers", lambda: ours([1, 2, 3], 5), eager([1, 2, 3], 5))
    yield row("longer than the context", lambda: ours([4, 1], 20), eager([4, 1], 20))
    yield row(
        "one graph", lambda: (ours([1, 2, 3], 6), compiled_graphs())[1], ({"GPT.forward": 1}, 0)
    )


@exercise("16.4", "explain a regression", level="core")
def _(answer):
    before = {"softmax": (12, 0.5), "gelu": (12, 0.25), "norm": (24, 0.25)}
    yield row("slower", lambda: answer(before, before | {"gelu": (12, 0.75)}), ("gelu", "slower"))
    yield row(
        "more calls", lambda: answer(before, before | {"norm": (48, 0.25)}), ("norm", "more calls")
    )
    yield row("new", lambda: answer(before, before | {"copy": (2, 1.0)}), ("copy", "new"))
    several = before | {"softmax": (12, 0.625), "copy": (1, 1.0), "norm": (24, 0.375)}
    both = before | {"gelu": (13, 0.5)}
    yield row("a call more, and each much slower", lambda: answer(before, both), ("gelu", "slower"))
    often = before | {"gelu": (36, 0.3)}
    yield row(
        "many calls more, and each a little slower",
        lambda: answer(before, often),
        ("gelu", "more calls"),
    )
    yield row("the one that costs most more", lambda: answer(before, several), ("norm", "slower"))

    def faster():
        return answer(before, before | {"gelu": (12, 0.125)}), answer({}, {"copy": (1, 1.0)})

    yield row("nothing costs more", faster, (None, ("copy", "new")))
    yield row(
        "no kernel is left", lambda: (answer(before, {}), answer({}, before)[1]), (None, "new")
    )
