"""Programs whose names are those of Python's builtins, neighbours of keywords, and every identifier
that generated code uses.

    python -m tests.soundness.names --count 1000 --jobs 2

A program (a random one of `tests/fuzz`, or a module with parameters, breaks and closures) is
compiled under its own names first; the identifiers of the guards, graphs, wrappers, kernels and
replacement code that came out are added to the pool.  Then its parameters, locals, attributes,
functions, classes and globals are renamed to names of the pool.  The renamed program must do what
plain Python does; of a module, as many frames, graphs, breaks and recompilations must come as of
the first one: a guard that a name breaks gives right numbers, and recompiles in each call.
"""

import ast
import builtins
import io
import itertools
import keyword
import random
import re
import tokenize
import types

import torch

import minidynamo
from minidynamo import records

from ..fuzz import programs, run_programs
from ..fuzz.compare import difference, outcome
from . import runner
from .modes import Mode

WORD = re.compile(r"[^\W\d]\w*")
KEPT = {*"f G H LOG TABLE W NET Box Sub k w z scale".split()}  # the harness asks for these
COUNTED = ("frames", "graphs", "graph_breaks", "recompiles", "errors", "skipped")
MODULE = """
import torch
from minidynamo import graph_break

number = 2.0

def inner(first, second=1.5, *, third=0.25):
    return first * second + third

def make(captured):
    def closed(value, *more):
        return value * captured + len(more)
    return closed

class Layer(torch.nn.Module):
    def __init__(this):
        super().__init__()
        this.weight = torch.nn.Parameter(torch.arange(16.0).reshape(4, 4) / 8 - 1)
        this.register_buffer("offset", torch.arange(4.0))
        this.factor = 3
        this.table = {"key": 2, "other": 0.5}
        this.function = make(this.factor)

    def part(this, given):
        return given @ this.weight + this.offset

    def forward(this, left, right, count, switch=True, *rest, **named):
        if switch:
            local = torch.relu(this.part(left)) * number
        else:
            local = left - right
        for step, item in enumerate(rest):
            local = local + inner(item, third=step)
        total = [local * place for place in range(count)]
        BREAK
        result = this.function(local, right) + right * this.table["key"]
        last = {name: result * scale for name, scale in named.items()}
        return torch.softmax(result, -1), local.sum(), total, last, local.size(0) * count

layer = Layer()

def f(left, right, longer, count, switch=True, *rest, **named):
    return layer(left, right, count, switch, *rest, **named), left * longer.size(0)
"""


def module_text(seed: int) -> str:
    return MODULE.replace("BREAK", random.Random(seed).choice(["graph_break()", "pass"]))


def module_arguments(seed: int, call: int) -> tuple[tuple, dict]:
    """Two equal calls, then another number, then other sizes, then the second branch."""
    rows, count, switch = [(3, 2, True), (3, 2, True), (3, 4, True), (5, 4, True), (3, 2, False)][
        call
    ]
    values = torch.Generator().manual_seed(seed + rows)
    left, right, item = (torch.randn(rows, 4, generator=values) for _ in range(3))
    longer = torch.randn(rows + 2, generator=values)
    return (left, right, longer, count, switch, item), {"key": 2, "width": 0.5}


def neighbours() -> set[str]:
    """Builtins, soft keywords, and keywords with an underscore."""
    words = {*dir(builtins), *keyword.softkwlist, "_", "__", "self", "cls", "\u00f1", "\u03bb"}
    for word in keyword.kwlist:
        words |= {word + "_", "_" + word, word.lower() + "_1"}
    return words


def code_names(code: types.CodeType) -> set[str]:
    found = {*code.co_varnames, *code.co_names, *code.co_cellvars, *code.co_freevars}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= code_names(constant)
    return found


def generated_names() -> set[str]:
    """The identifiers of everything that has been generated since the last `reset`."""
    found: set[str] = set()
    for record in records.frames:
        texts = []
        if record.guard_function is not None:
            found |= record.guard_function.namespace.keys()
            texts.append(record.guard_function.source)
        if isinstance(record.replacement_code, types.CodeType):
            found |= code_names(record.replacement_code)
        if record.graph is not None:
            texts.append(record.graph.code)
            found |= record.graph.forward.__globals__.keys()
        kept = record.backend_record
        if kept is not None:
            texts += [kept.wrapper_source or "", *(kernel.source for kernel in kept.kernels)]
        found.update(*map(WORD.findall, texts))
    return found


def own_names(text: str) -> set[str]:
    """What the program itself defines: parameters, variables, functions, classes, attributes."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    known = {*dir(torch.nn.Module()), *dir(torch.Tensor), "forward"}
    return {name for name in found if not name.startswith("__")} - known - KEPT


def parameter_names(text: str) -> set[str]:
    """The parameters of `f`, whose values are inputs of the graph."""
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    found = {argument.arg for node in functions if node.name == "f" for argument in names_of(node)}
    return found - KEPT


def names_of(function: ast.FunctionDef) -> list[ast.arg]:
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def renamed(text: str, names: dict[str, str]) -> str:
    """The text with other words for these names, wherever they stand."""
    tokens = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        word = token.string
        if token.type == tokenize.NAME:
            word = names.get(word, word)
        tokens.append((token.type, word))
    return tokenize.untokenize(tokens)


def drawn(text: str, pool: set[str], rng: random.Random, first: set[str]) -> dict[str, str]:
    """{name of the program: name of the pool}; none is in the program already, each is given
    once.  What is in `first` is given first, to parameters before others."""
    used = {*WORD.findall(text), *module_arguments(0, 0)[1]}  # `key`, `width` are given by name
    free = [
        name
        for name in sorted(pool - used)
        if name.isidentifier()
        and not keyword.iskeyword(name)
        and not hasattr(torch.nn.Module, name)
    ]
    free = [
        name for name in free if not name.startswith("__") and name not in vars(torch.nn.Module())
    ]
    rng.shuffle(free)
    free.sort(key=lambda name: name not in first)
    own = sorted(own_names(text))
    rng.shuffle(own)
    if first:
        parameters = parameter_names(text)
        own.sort(key=lambda name: name not in parameters)
    return dict(zip(own, free))


def run(text: str, seed: int, mode: Mode | None, digits: int | None) -> tuple[list, list]:
    """(outcomes of the calls, what was counted); mode None: plain Python."""
    file, space = f"<program {seed}>", {"__name__": "program"}
    torch.manual_seed(0)
    exec(compile(text, file, "exec"), space)
    function = space["f"]
    if mode is not None:
        minidynamo.reset()
        function = mode.compile(function)
    outcomes = []
    with torch.no_grad():
        for call in range(5 if seed % 2 else programs.CALLS):
            if seed % 2:
                args, kwargs = module_arguments(seed, call)
                watched = []
            else:
                args, kwargs = programs.arguments(seed, call, space)
                watched = [space[name] for name in run_programs.STATE]
            outcomes.append(outcome(function, args, kwargs, watched, file, digits))
    return outcomes, [sum(records.counters[name].values()) for name in COUNTED]


def cases(count: int, first: int) -> list[int]:
    return list(range(first, first + count))


def check(seed: int, mode: Mode) -> str:
    """Odd seeds are modules, even ones random programs."""
    rng = random.Random(seed)
    text = module_text(seed) if seed % 2 else programs.program(seed // 2)
    digits = None if mode.options["backend"] == "eager" else 4
    _, expected = run(text, seed, mode, digits)
    pool = generated_names() | (neighbours() if rng.random() < 0.5 else set())
    # What symbols of sizes are called, and may stand beside a parameter of that name.
    sizes = {f"{letter}{number}" for letter in "su" for number in range(4)}
    first = sizes if rng.random() < 0.3 else set()
    names = drawn(text, pool | first, rng, first)
    try:
        other = renamed(text, names)
        compile(other, "renamed", "exec")
    except (
        SyntaxError
    ):  # a name that is a global and a parameter now, `match` where it is a keyword
        return ""
    plain, _ = run(other, seed, None, digits)
    found = []
    compiled, counted = run(other, seed, mode, digits)
    for call, (a, b) in enumerate(zip(plain, compiled)):
        told = difference(a, b)
        if told:
            found.append(f"call {call}: {told}")
    if (
        seed % 2 and counted != expected
    ):  # a random program may do something else: `vars(box)` knows names
        counts = ", ".join(
            f"{what} {a} -> {b}" for what, a, b in zip(COUNTED, expected, counted) if a != b
        )
        found.append(f"other names give other counts: {counts}")
    if not found:
        return ""
    table = ", ".join(f"{a} -> {b}" for a, b in itertools.islice(names.items(), 60))
    return "\n".join([*found, f"names: {table}"])


if __name__ == "__main__":
    runner.main(
        "tests.soundness.names", default_modes="eager,eager-dynamic,inductor,inductor-dynamic"
    )
