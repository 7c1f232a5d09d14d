"""Pieces of generated C++ know what they are made of: what they say agrees with their text.

Here, and nowhere in the packages, the text is searched: as an oracle.
"""

import re

import pytest
import torch

import minidynamo
from miniinductor.codegen.code import Code, call, code, named
from miniinductor.codegen.cpp import CppKernelWriter
from miniinductor.codegen.tree import Branch, Comment, Line, names_in, uses_of, walk
from record_helpers import last_compiled

NAME = re.compile(r"\b(?!u?int\d)[a-z]+\d+(?:_\w+)?\b(?![(<])")  # x0, tmp3: no type, no function
PRELUDE = re.compile(r"mini::(\w+)")


def test_a_piece_reads_what_its_parts_read_as_often_as_they_stand_there():
    x, y = named("tmp0"), named("in1")
    piece = code("{0} * {0} + {1}", call("exp", x), y)
    assert piece == "mini::exp(tmp0) * mini::exp(tmp0) + in1"
    assert set(piece.reads) == {"tmp0", "in1"} and piece.uses == {"exp"}


def test_a_plain_text_is_no_line_that_may_be_asked():
    with pytest.raises(TypeError, match="nobody knows"):
        names_in([Line("out0[x0] = tmp3;")])
    with pytest.raises(TypeError, match="nobody knows"):
        uses_of([Branch("tmp3", [])])
    assert names_in([Comment("// tmp3")]) == []


def run(program, *inputs):
    """(what the compiled program gives, the record of its graph)"""
    minidynamo.reset()
    found = minidynamo.compile(program, fullgraph=True)
    result = found(*inputs)
    return result, last_compiled().backend_record


def rounded(x):
    return ((x.half() * 2).exp() + 1).float()


PROGRAMS = {
    "softmax": lambda x, i: (x @ x).softmax(-1),
    "gather": lambda x, i: x[i, i % 7] / x[3],
    "indices that may be negative": lambda x, i: x[i - 64].remainder(0.5),
    "integers": lambda x, i: (i // 3) % (i + 1) + i.clamp(2, 9),
    "truth values": lambda x, i: ((x > 0) & (i > 3)).any(-1) | (x < 1).all(-1),
    "places": lambda x, i: x.sin().argmax(-1),
    "masks": lambda x, i: torch.nn.functional.pad(x, (3, 4)).where(x.sum() > 0, -torch.inf),
    "running sums": lambda x, i: x.cumsum(-1).cos(),
    "scatters": lambda x, i: x.index_add(0, i, x.abs()),
    "columns": lambda x, i: x.sigmoid().sum(0) * x.half().float().amax(0),
    "float16": lambda x, i: rounded(x).sum(-1) + rounded(x.t()).sum(0),
    "bfloat16": lambda x, i: (x.bfloat16() + 1).tanh(),
    "doubles": lambda x, i: x.double().exp().mean(),
    "several loops": lambda x, i: x.view(8, 8, 64)[:, 2:5].transpose(0, 1).sum((0, 2)),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_what_lines_say_agrees_with_their_text(program, monkeypatch):
    bodies = []
    for method in ("lane_body", "plain_inner_loop"):
        plain = getattr(CppKernelWriter, method)

        def noted(self, *args, plain=plain):
            lines = plain(self, *args)
            bodies.append(lines if len(args) == 1 else args[0])
            return lines

        monkeypatch.setattr(CppKernelWriter, method, noted)
    x, i = torch.randn(64, 64), torch.arange(64)
    result, _ = run(program, x, i)
    torch.testing.assert_close(result, program(x, i), equal_nan=True)
    asked = [one for body in bodies for one in walk(body) if isinstance(one, Line | Branch)]
    for one in asked:
        text = one.text if isinstance(one, Line) else one.condition
        if isinstance(one, Comment):
            continue
        assert isinstance(text, Code), text
        made = {getattr(one, "name", "")}
        assert set(NAME.findall(text)) - made == {n for n in text.reads if NAME.fullmatch(n)}, text
        assert set(PRELUDE.findall(text)) <= text.uses, text
