"""Programs of tensors of subclasses, and of objects, whose `__torch_function__` says what torch's
functions mean.

    python -m tests.soundness.subclasses --modes eager,aot_eager,inductor

A case is a number, from which a program is drawn: two or three classes, arguments of them, and a
few statements that call torch with these, return what they get, and ask for classes, sizes and
attributes.  Between the calls something changes: what the classes compute, an argument's class, an
attribute, a whole `__torch_function__`.  Compared with plain Python: results with their classes,
memory and attributes, errors, and what each `__torch_function__` was called with, in order.
"""

import linecache
import random
import textwrap
from collections.abc import Callable
from typing import Any

import torch

from ..fuzz.compare import difference, outcome
from . import runner
from .modes import Mode

FILE = __file__
HEAD = "@classmethod\ndef __torch_function__(cls, func, types, args=(), kwargs=None):\n"
LOGS = "LOG.append((cls.__name__, func.__name__, len(types), len(args), sorted(kwargs or ())))\n"
SUPER = "super().__torch_function__(func, types, args, kwargs or {})"
# what a __torch_function__ of a subclass does, behind `HEAD`
BODIES = {
    "asks its base": f"return {SUPER}",
    "logs": f"{LOGS}return {SUPER}",
    "scales": f"""{LOGS}found = {SUPER}
if func in (torch.add, torch.Tensor.add, torch.sin):
    return found * FACTOR
return found""",
    "gives plain ones": f"""{LOGS}with torch._C.DisableTorchFunctionSubclass():
    return func(*args, **(kwargs or {{}}))""",
    "unwraps": """with torch._C.DisableTorchFunctionSubclass():
    plain = [a.as_subclass(torch.Tensor) if isinstance(a, cls) else a for a in args]
return func(*plain, **(kwargs or {}))""",
    "refuses some": f"""{LOGS}if func in (torch.mul, torch.Tensor.mul, torch.cat):
    return NotImplemented
return {SUPER}""",
    "raises": f"""if func is torch.exp:
    raise ValueError(cls.__name__)
return {SUPER}""",
    "counts": f"""cls.calls += 1
return {SUPER}""",
    "by name": f"""if func.__name__ == "add":
    return args[0].as_subclass(torch.Tensor) - FACTOR
return {SUPER}""",
    "as others": f"""found = {SUPER}
return found.as_subclass(torch.Tensor) if FACTOR > 2 else found""",
}
# what is in a subclass beside that
MEMBERS = {
    "nothing": "calls = 0",
    "method": "calls = 0\ndef twice(self):\n    return self + self",
    "property": "calls = 0\n@property\ndef half(self):\n    return self / 2",
    "attribute": "calls = 0\nscale = 3",
    "add": "calls = 0\ndef add(self, other):\n    return super().add(other) * 2",
    "disabled": "calls = 0\n__torch_function__ = torch._C._disabled_torch_function_impl",
}
OBJECTS = {
    "box": """plain = [a.inner if isinstance(a, {name}) else a for a in args]
return {name}(func(*plain, **(kwargs or {{}})))""",
    "value": """plain = [a.inner if isinstance(a, {name}) else a for a in args]
return func(*plain, **(kwargs or {{}}))""",
    "logs": """LOG.append((func.__name__, [t.__name__ for t in types]))
plain = [a.inner * FACTOR if isinstance(a, {name}) else a for a in args]
return func(*plain, **(kwargs or {{}}))""",
    "refuses": "return NotImplemented",
    "handles some": """if func not in (torch.add, torch.sin, torch.stack):
    return NotImplemented
return func, len(args)""",
    "counts": """for a in args:
    if isinstance(a, cls):
        a.calls += 1
return args[0].calls if isinstance(args[0], cls) else FACTOR""",
}
# a statement's value, of u, v (anything) and t (a plain tensor)
VALUES = """
    torch.add(u, v)|u + v|v * u|u - 1|2 / u|-u|u @ v|u == v|u > t|u.mul(v)|u.add(v)
    u.sub(2, alpha=2)|torch.sin(u)|torch.exp(u)|u.sum()|u.mean(0)|u.max(dim=0)|u.T|u[0]|u[:, 1:]
    u[..., None]|u.shape|u.size(0)|u.dim()|u.dtype|u.view(-1)|u.reshape(9)|u.split(2)
    torch.cat([u, v])|torch.stack([u, t])|torch.cat((t, v), dim=1)|torch.where(t > 0, u, v)
    torch.maximum(u, t)|F.relu(u)|F.linear(t, u)|F.softmax(u, dim=-1)
    torch.einsum("ij,jk->ik", u, v)|u.clone()|u.detach()|torch.zeros_like(u)|u.new_ones(3)
    u.as_subclass(A)|u.as_subclass(torch.Tensor)|t.as_subclass(B)|type(u).__name__
    isinstance(u, A)|isinstance(u, torch.Tensor)|u.requires_grad|u.is_leaf|len(u)
    torch.is_tensor(u)|hasattr(u, "mark")|getattr(u, "scale", None)|u.mark|u.twice()|u.half
    A.calls|B.calls|torch.Tensor.add(u, v)|torch.numel(u)|u.float()|u.to(torch.float64)
    torch.broadcast_tensors(u, v)|list(u)|tuple(torch.unbind(u))|u.chunk(3)[1]|sum([u, v])
    torch.allclose(u, t)|u.tolist()|torch.overrides.has_torch_function((u, v))
    torch.overrides.is_tensor_like(u)|u.__class__.__name__|torch.add(input=u, other=v)
    torch.clamp(u, min=0)|u.clamp(0, 1)|torch.norm(u)|u.pow(2)|u ** 2
    torch.nn.functional.pad(u, (1, 1))|torch.outer(u[0], t[0])|u.masked_fill(t > 0, 1.0)
    torch.mul(u, v)|torch.lerp(u, v, 0.5)|torch.addmm(t, u, v)|u.flatten()|u.squeeze()
    u.unsqueeze(0)|u.expand(2, 3, 3)|torch.abs(u)|abs(u)|u.bool()|u & 1|~(u > 0)|round(u)|u // 1
    u % 2|torch.sort(u)|u.topk(2)|torch.empty_like(u).shape|u.contiguous()|u.cumsum(0)
    torch.full_like(u, FACTOR)|F.dropout(u, 0.0)
"""
EFFECTS = """
    u.add_(1)|u.mul_(t)|u[0] = 2|u[1] = t[0]|t.add_(u)|torch.add(t, u, out=w)|u += v|t *= 2
    A.calls += 1|u.mark = 4|minidynamo.graph_break()|LOG.append(len(LOG))|del u.mark|u.zero_()
    u.copy_(v)
"""
AROUND = (
    "with torch.no_grad():; with torch._C.DisableTorchFunctionSubclass():; "
    "with Mode():; if isinstance(u, torch.Tensor):; try:; for _ in range(2):"
).split("; ")
CHANGES = ("nothing", "factor", "class", "function", "attribute", "gradient", "calls", "size")
MODE = f"""class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        LOG.append((func.__name__, len(types)))
        return func(*args, **(kwargs or {{}}))
"""


def rows(text: str) -> list[str]:
    return [part for line in text.strip().splitlines() for part in line.strip().split("|")]


def of_subclass(draw: random.Random, name: str, base: str) -> str:
    members = draw.choice(list(MEMBERS))
    body = "" if members == "disabled" or draw.random() < 0.2 else draw.choice(list(BODIES))
    text = MEMBERS[members]
    if body:
        text += "\n" + HEAD + textwrap.indent(BODIES[body], "    ")
    return f"class {name}({base}):\n" + textwrap.indent(text, "    ")


def of_object(draw: random.Random, name: str) -> str:
    text = "calls = 0\ndef __init__(self, inner):\n    self.inner = inner\n" + HEAD
    text += textwrap.indent(OBJECTS[draw.choice(list(OBJECTS))].format(name=name), "    ")
    return f"class {name}:\n" + textwrap.indent(text, "    ")


def program_of(seed: int) -> tuple[str, str]:
    """(the text, what changes between the calls)."""
    draw = random.Random(seed)
    parts = [MODE, of_subclass(draw, "A", "torch.Tensor")]
    parts.append(of_subclass(draw, "B", draw.choice(["A", "torch.Tensor", "torch.Tensor"])))
    parts.append(of_object(draw, "C"))
    lines, names, made = [], ["x", "a", "b", "c", "a", "b"], []
    if draw.random() < 0.4:
        lines.append("c = C(draw)".replace("draw", draw.choice(["x", "a", "x * 2"])))
    for number in range(draw.randint(1, 4)):
        u, v = draw.choice(names[1:]), draw.choice(names)
        is_effect = draw.random() < 0.2
        text = draw.choice(rows(EFFECTS if is_effect else VALUES))
        words = {"u": u, "v": v, "t": "x", "w": "w"}
        text = "".join(words.get(word, word) for word in split(text))
        if not is_effect:
            made.append(f"r{number}")
            text = f"r{number} = {text}"
            names.append(f"r{number}")
            lines.append(f"r{number} = None")
        if draw.random() < 0.2:
            around = draw.choice(AROUND).replace("(u,", f"({u},")
            lines += [around, "    " + text]
            if around == "try:":
                lines += ["except Exception as error:", "    LOG.append(type(error).__name__)"]
        else:
            lines.append(text)
    lines.append(f"return ({', '.join([*made, 'w'])},)")
    parts.append("def program(x, a, b, c, w):\n" + textwrap.indent("\n".join(lines), "    "))
    return "\n\n\n".join(parts) + "\n", draw.choice(CHANGES)


def split(text: str) -> list[str]:
    """Its words, and what stands between them."""
    found, word = [], ""
    for letter in text:
        if letter.isidentifier() or word and letter.isdigit():
            word += letter
            continue
        found += [word, letter]
        word = ""
    return [*found, word]


class World:
    """The program's module, its arguments, and what its classes have been called with."""

    def __init__(self, seed: int, compiled: Callable) -> None:
        text, self.change = program_of(seed)
        name = f"<subclasses {seed}>"
        self.space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "FACTOR": 2.0}
        import minidynamo

        self.space |= {"LOG": [], "minidynamo": minidynamo, "__name__": "program"}
        linecache.cache[name] = len(text), None, text.splitlines(True), name
        exec(compile(text, name, "exec"), self.space)
        self.function = compiled(self.space["program"])
        self.size, self.learns = 3, seed % 3 == 0

    def arguments(self) -> list[Any]:
        space, size = self.space, self.size
        x = torch.sin(torch.arange(float(size * size)).reshape(size, size) + 1)
        a, b = (torch.cos(x + n).as_subclass(space[kind]) for n, kind in enumerate("AB"))
        a.requires_grad_(self.learns)
        if self.change == "attribute" or self.learns:
            b.mark = 7
        return [x, a, b, space["C"](x * 2), torch.zeros(size, size)]

    def step(self) -> None:
        """What changes, if the change is this one."""
        space = self.space
        if self.change == "factor":
            space["FACTOR"] = 3.0
        elif self.change == "class":
            space["A"], space["B"] = space["B"], space["A"]
        elif self.change == "function":
            vars(space["B"])
            space["B"].__torch_function__ = classmethod(
                lambda cls, func, types, args=(), kw=None: 5
            )
        elif self.change == "gradient":
            self.learns = not self.learns
        elif self.change == "calls":
            space["A"].calls = 10
        elif self.change == "size":
            self.size = 4

    def call(self, args: list[Any]) -> Any:
        with torch.random.fork_rng():
            found = self.function(*args)
        log = list(self.space["LOG"])
        with torch._C.DisableTorchFunctionSubclass():
            return told(found), told(args), log, [self.space[n].calls for n in "ABC"]

    def calls(self) -> list[Any]:
        found = []
        for turn in range(4):
            self.space["LOG"].clear()
            args = self.arguments()
            row = outcome(lambda args=args: self.call(args), (), {}, [], FILE, digits=5)
            row.pop("lines")
            found.append(row)
            if turn == 1:
                self.step()
        return found


def told(value: Any) -> Any:
    """The value with plain tensors: what describes them must ask no class."""
    if isinstance(value, torch.Tensor):
        kept = {name: told(item) for name, item in vars(value).items()}
        return type(value).__name__, value.as_subclass(torch.Tensor), value.is_leaf, kept
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(told, value)]
    if hasattr(type(value), "__torch_function__"):
        return type(value).__name__, {name: told(item) for name, item in vars(value).items()}
    return value


def cases(count: int, first: int) -> list[int]:
    return list(range(first, first + count))


def check(case: int, mode: Mode) -> str:
    plain, compiled = World(case, lambda function: function), World(case, mode.compile)
    for turn, (one, other) in enumerate(zip(plain.calls(), compiled.calls())):
        found = difference(one, other)
        # (Where the stack is full, torch raises one or the other: who has read an object's
        # `__dict__` decides.)
        if found and not ("RecursionError" in f"{one}" and "RuntimeError" in f"{other}"):
            return f"call {turn} ({plain.change}): {found}\n{program_of(case)[0]}"
    return ""


if __name__ == "__main__":
    runner.main("tests.soundness.subclasses", "eager,aot_eager,inductor", default_count=100000)
