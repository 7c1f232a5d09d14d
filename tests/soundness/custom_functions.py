"""What a custom autograd function reads and writes outside; then that changes, between two calls or
between a call and its backward pass.

    python -m tests.soundness.custom_functions --modes aot_eager,inductor

A case is (what is read, in which methods, change, what is written, when, kind).  The methods are
`forward`, `setup_context` and `backward` of a `torch.autograd.Function`; they read globals,
closures, attributes of the context, of objects, of modules, of the class; and write to them.
Compared with eager: values, gradients, and everything that was written, after each call and each
backward pass.
Enumerated.
"""

from collections.abc import Callable

import torch

from ..fuzz.compare import difference_of_calls, outcome
from . import runner
from .modes import Mode

FILE = "<a program of tests.soundness.custom_functions>"
HEADER = """
import math
import torch
from torch.autograd import Function

number, table, row, seen, weight, count = 2, {"k": 2}, [2], [], torch.ones(3) * 2, 0

class Holder:
    k = 2
    count = 0
    def scale(self): return self.k
    @property
    def own(self): return self.k

class Net(torch.nn.Module):
    k = 2
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        torch.nn.init.constant_(self.layer.weight, 2)
        self.register_buffer("kept", torch.ones(1) * 2)
        self.count = 0

holder, net = Holder(), Net()
def helper(n=2): return n
def reader(): return number
def learns(): return 3 if net.training else 5
def modes(): return 3 if torch.is_grad_enabled() else 5

def make(k):
    class Mine(Function):
        scale = 2
        count = 0
METHODS
    def put(new):
        nonlocal k
        k = new
    return Mine, put

Mine, put = make(2)
def f(x, w):
    return Mine.apply(x, w).sin()
"""
# in the forward and backward of a class; or with a `setup_context`
BACKWARD = """\
@staticmethod
def backward(ctx, g):
    x, w = ctx.saved_tensors
    WRITE_B
    return g * w * READ_B, (g * x * READ_B if ctx.needs_input_grad[1] else None)
"""
TOGETHER = f"""
@staticmethod
def forward(ctx, x, w):
    WRITE_F
    ctx.save_for_backward(x, w)
    ctx.scale = READ_F
    return x * w * READ_F
{BACKWARD}"""
APART = f"""
@staticmethod
def forward(x, w):
    WRITE_F
    return x * w * READ_F
@staticmethod
def setup_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)
    ctx.scale = READ_F
{BACKWARD}"""
# what is read -> {change: statement}
READS: dict[str, dict[str, str]] = {
    "number": {"other": "number = 7", "type": "number = 2.5", "gone": "del number"},
    "reader()": {"other": "number = 7", "function": "reader = lambda: 7"},
    "helper()": {
        "code": "helper.__code__ = (lambda n: 7).__code__",
        "d": "helper.__defaults__ = (7,)",
    },
    "table['k']": {"other": "table['k'] = 7", "gone": "table.clear()"},
    "table.get('late', 2)": {"comes": "table['late'] = 7"},
    "row[0]": {"other": "row[0] = 7", "before": "row.insert(0, 7)"},
    "len(row)": {"longer": "row.append(1)"},
    "weight": {
        "other": "weight = torch.ones(3) * 7",
        "written": "weight.mul_(3)",
        "gone": "del weight",
    },
    "weight.sum()": {"written": "weight.mul_(3)", "shape": "weight = torch.ones(5)"},
    "holder.k": {"own": "holder.k = 7", "class": "Holder.k = 7", "another": "holder = Net()"},
    "holder.scale()": {"own": "holder.k = 7", "method": "Holder.scale = lambda self: 7"},
    "holder.own": {"class": "Holder.k = 7", "property": "Holder.own = property(lambda self: 7)"},
    "getattr(holder, 'late', 2)": {"comes": "holder.late = 7", "class": "Holder.late = 7"},
    "net.k": {"own": "net.k = 7", "class": "Net.k = 7"},
    "net.kept": {"other": "net.kept = torch.ones(1) * 7", "written": "net.kept.mul_(3)"},
    "net.layer.weight.view(1)": {
        "written": "net.layer.weight.data.mul_(3)",
        "other": "net.layer = torch.nn.Linear(1, 1); torch.nn.init.constant_(net.layer.weight, 7)",
    },
    "learns()": {"eval": "net.eval()"},
    "modes()": {"function": "modes = lambda: 7"},
    "Mine.scale": {"other": "Mine.scale = 7"},
    "getattr(Mine, 'late', 2)": {"comes": "Mine.late = 7"},
    "k": {"other": "put(7)", "type": "put(2.5)"},
    "math.sqrt(4)": {"replaced": "math = Holder; Holder.sqrt = staticmethod(lambda n: 7)"},
}
ONLY_BACKWARD = {
    "ctx.scale": {"nothing": "pass", "number": "number = 7"},  # forward read the number
    "(2 if ctx.needs_input_grad[0] else 3)": {"nothing": "pass"},
}
WRITES = {
    "nothing": "pass",
    "list": "seen.append(1)",
    "table": "table['n'] = table.get('n', 0) + 1",
    "global": "globals()['count'] = count + 1",
    "attribute": "holder.count += 1",
    "class": "Mine.count += 1",
    "module": "net.count += 1",
    "buffer": "net.kept.add_(1)",
    "module's tensor": "net.last = x.detach()",
    "context": "ctx.extra = number; seen.append(ctx.extra)",
    "printed": "print('here', number)",
    "closure": "seen.append(k)",
}
METHODS = ("forward", "backward", "both")
WHEN = ("between calls", "before backward")
VJP = TOGETHER.replace("def backward", "def vjp")
KINDS = {"together": TOGETHER, "apart": APART, "vjp": VJP}
# functions, classes and modules that `backward` reads are those of the call (docs/limits.md)
LATE = ("function", "code", "d", "method", "property", "class", "replaced")


def cases(count: int, first: int) -> list[tuple]:
    """All of them: `count` and `first` are not looked at."""
    found = []
    for read, changes in {**READS, **ONLY_BACKWARD}.items():
        for change in changes:
            for method in METHODS if read in READS else ("backward",):
                for write in WRITES:
                    for when in WHEN:
                        for kind in KINDS:
                            found.append((read, change, method, write, when, kind))
    return [case for case in found if not is_late(case)]


def is_late(case: tuple) -> bool:
    _, change, method, _, when, _ = case
    return when == "before backward" and method != "forward" and change in LATE


def program(case: tuple) -> tuple[dict, str]:
    """(namespace, statement that changes something)."""
    read, change, method, write, _, kind = case
    text = KINDS[kind]
    written = WRITES[write]
    if write == "context" and kind == "apart":  # forward has none
        text = text.replace("WRITE_F", "pass")
    in_forward, in_backward = method != "backward", method != "forward"
    number = "number" if read == "ctx.scale" else "2"
    text = text.replace("READ_F", f"({read})" if in_forward else number)
    text = text.replace("READ_B", f"({read})" if in_backward else "3")
    text = text.replace("WRITE_F", written if in_forward else "pass")
    text = text.replace("WRITE_B", written if in_backward else "pass")
    methods = "\n".join(f"        {line}" for line in text.strip().split("\n"))
    space: dict = {"__name__": "program"}
    torch.manual_seed(0)
    exec(compile(HEADER.replace("METHODS", methods), FILE, "exec"), space)
    return space, {**READS, **ONLY_BACKWARD}[read][change]


WATCHED = ("number", "table", "row", "seen", "count", "holder", "weight")


def calls(case: tuple, mode: Mode | None) -> list:
    space, change = program(case)
    function: Callable = space["f"]
    if mode is not None:
        function = mode.compile(function)
    found = []
    for step in range(4):
        if step == 2 and case[4] == "between calls":
            exec(change, space)
        x = torch.arange(3.0).requires_grad_()
        w = (torch.ones(3) * 1.5).requires_grad_(step != 3)
        result: list = []

        def call(x: torch.Tensor, w: torch.Tensor) -> None:
            result.append(function(x, w))

        told = outcome(call, (x, w), {}, state(space), FILE, digits=4)
        found.append(told | {"value": [t.tolist() for t in result]})
        if step == 2 and case[4] == "before backward":
            exec(change, space)
        if result:
            learned = outcome(lambda: result[0].sum().backward(), (), {}, state(space), FILE)
            grads = [
                None if t.grad is None else [f"{v:.4g}" for v in t.grad.tolist()] for t in (x, w)
            ]
            found.append(learned | {"grads": grads})
    found.append(outcome(lambda: None, (), {}, state(space), FILE))  # what the last call wrote
    return found


def state(space: dict) -> list:
    """What the methods may write, as it is now: the same list of objects, described afterwards."""
    net, own = space["net"], vars(space["net"])
    kept = [space.get(name) for name in WATCHED]
    return [kept, own.get("count"), net.kept, own.get("last"), space["Mine"].count]


def check(case: tuple, mode: Mode) -> str:
    plain, compiled = calls(case, None), calls(case, mode)
    if len(plain) != len(compiled):
        return f"plain {len(plain)} steps, compiled {len(compiled)}"
    for step in (*plain, *compiled):
        step.pop("lines")  # of code that a backend runs
    return difference_of_calls(plain, compiled)


def sample(number: int) -> list[tuple]:
    """Each thing that is read and each that is written, with what turns of the rest."""
    found, methods, writes = [], METHODS, list(WRITES)
    for read, changes in {**READS, **ONLY_BACKWARD}.items():
        for change in changes:
            number += 1
            method = methods[number % 3] if read in READS else "backward"
            when, kind = WHEN[number // 2 % 2], list(KINDS)[number // 3 % 3]
            found.append((read, change, method, writes[number % len(writes)], when, kind))
    return [case for case in found if not is_late(case)]


if __name__ == "__main__":
    runner.main("tests.soundness.custom_functions", default_modes="eager,aot_eager,inductor")
