"""Each gradient op is filed under the user's line whose gradient it computes.

The oracle knows nothing of how origins are found: in a random program one line at a time is
replaced by another function of the same values.  The gradient ops that change must be those that
are filed under that line, and no others.
"""

import random

import pytest
import torch

import minidynamo
from miniinductor.autograd.joint import held_tensors, trace_joint

# Families of functions of the same values whose results have the same strides, since other ops may
# ask for those.  Their gradients take different ops.  {c}: a constant.
UNARY = ["{a}.sin()", "{a}.exp()", "{a}.tanh()", "{a} * {c}", "torch.sigmoid({a})", "{a} ** 3"]
BINARY = ["{a} * {b}", "{a} + {b} * {c}", "{a} * {b}.cos()", "torch.atan2({a}, {b})"]
TURNED = ["{a}.t()", "({a} * {c}).t()", "helper({a}, {c}).t()"]
SQUARES = ["({a} @ {a}).sin()", "torch.mm({a}, {a}.t())", "({a} @ {a}.t()) * {c}"]
PRODUCTS = ["({b} @ {a}).sin()", "torch.mm({a}, {b})", "({a} @ {b}.t()) * {c}"]
# each line has layers of its own: where two share a weight, one of them adds up its gradients
MODULES = ["self[{n}].first({a})", "self[{n}].second({a})", "self[{n}].first({a}).sin()"]
DETOURS = ["{a}.clone()", "{a}.detach() * {a}", "{a}.unsqueeze(0).squeeze(0) * {c}"]
REDUCED = ["self[{n}].norm({a})", "torch.softmax({a}, -1)", "helper({a}.contiguous(), {c})"]
WRITES = ["{a}.clone().mul_({c})", "{a}.clone().sin_()", "torch.exp_({a} * {c})"]
WRITES += ["{a}.clone().add_({c}).tanh_()"]
FAMILIES = [WRITES, UNARY, BINARY, TURNED, SQUARES, PRODUCTS, MODULES, DETOURS, REDUCED]
SIZE = 3


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(SIZE, SIZE)
        self.second = torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE), torch.nn.GELU())
        self.norm = torch.nn.LayerNorm(SIZE)


def helper(x, constant):
    return torch.relu(x * constant)


def random_line(rng, number):
    """(family, choice, arguments) of the line that makes `v{number}`."""
    values = {
        "a": f"v{rng.randrange(max(0, number - 3), number)}",
        "b": f"v{rng.randrange(number)}",
    }
    family = rng.choice(FAMILIES)
    values |= {"c": round(rng.uniform(0.2, 0.9), 3), "n": number}
    return family, rng.randrange(len(family)), values


def text_of(lines):
    body = [
        f"    v{number} = {family[choice].format(**values)}"
        for number, (family, choice, values) in enumerate(lines, 1)
    ]
    return "\n".join(
        ["def program(self, v0):", *body, f"    return v{len(lines)}.sum(), v0.cos()", ""]
    )


def graph_of(text, layers):
    """The joint graph of a program, as it was traced."""
    scope, found = {"torch": torch, "helper": helper}, []
    exec(compile(text, "<program>", "exec"), scope)

    def backend(gm, inputs):
        found.append(trace_joint(gm, inputs, held_tensors(gm)).recorded)
        return gm.forward

    minidynamo.compile(scope["program"], backend=backend, fullgraph=True)(
        layers, torch.ones(SIZE, SIZE, requires_grad=True)
    )
    return found[0]


def line_in_program(node):
    """The line of `program` to which a gradient op is filed; that of the call, for a helper's."""
    return [line for file, line, _ in node.meta["user_stack"] if file == "<program>"][-1]


def filed(graph):
    """{line of the program: its gradient ops, in order, each with its numbers}"""
    found = {}
    for node in graph.graph.nodes:
        if node.meta.get("backward"):
            numbers = [arg for arg in node.args if not isinstance(arg, torch.fx.Node)]
            found.setdefault(line_in_program(node), []).append(str((node.target, numbers)))
    return found


@pytest.mark.parametrize("seed", range(10))
def test_a_replaced_line_changes_the_gradient_ops_filed_under_it_and_no_others(seed):
    rng, layers = random.Random(seed), torch.nn.ModuleList(Layers() for _ in range(9))
    lines = [random_line(rng, number) for number in range(1, rng.randrange(4, 9))]
    before = filed(graph_of(text_of(lines), layers))
    reached = 0
    for at, (family, choice, values) in enumerate(lines):
        line = at + 2  # the first one is `def program`
        other = (choice + rng.randrange(1, len(family))) % len(family)
        changed = [*lines[:at], (family, other, values), *lines[at + 1 :]]
        after = filed(graph_of(text_of(changed), layers))
        if line not in before or line not in after:
            continue  # nothing that is returned depends on it
        reached += 1
        others = {*before, *after} - {line}
        moved = [n for n in others if before.get(n) != after.get(n)]
        assert not moved and before[line] != after[line], (text_of(lines), line, family[other])
    assert reached


def test_the_gradients_of_a_linear_layer_name_the_call():
    e = minidynamo.explain(torch.nn.Linear(3, 4))(torch.randn(2, 3, requires_grad=True))
    nodes = [n for n in e.compiled.joint_graph.graph.nodes if n.meta.get("backward")]
    assert nodes and all(node.meta["origins"] == {"linear"} for node in nodes)
    assert all("F.linear(" in node.meta["source_line"][2] for node in nodes)
