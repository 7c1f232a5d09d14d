"""Torch's own Python that asks whether it is compiled: eager's values and errors are taken."""

import copy
import re

import pytest
import torch
from torch import nn

import minidynamo
from minidynamo.convert.convert_frame import TORCH
from minidynamo.functions.torch_state import SAME_VALUES

ASKS = re.compile(r"\bis_(?:dynamo_)?compiling\(\)")
# whose two ways differ in values or errors, or which no compiled frame comes by
EAGERS_WAY = {
    "nn/functional.py": "a node of the graph as a whole",
    "nn/modules/transformer.py": "nested tensors, whose padded rows are zeros",
    "distributed/nn/functional.py": "refuses to be compiled",
    "distributed/algorithms/ddp_comm_hooks/default_hooks.py": "a hook of the backward pass",
}
NOT_CALLED = ("_dynamo", "_inductor", "_functorch", "_export", "export", "onnx", "testing")
NOT_CALLED += ("_subclasses", "_vendor", "__init__.py", "_compile.py")


def test_every_file_of_torchs_that_asks_is_known():
    from pathlib import Path

    files = [f for f in Path(TORCH).rglob("*.py") if ASKS.search(f.read_text(errors="replace"))]
    names = [str(file.relative_to(TORCH)) for file in files]
    asking = {name for name in names if not name.startswith(NOT_CALLED)}
    assert {f for f in asking if not f.startswith(SAME_VALUES)} <= set(EAGERS_WAY)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_an_encoder_gives_zeros_in_padded_rows(backend):
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    x, mask = torch.randn(3, 5, 8), torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 3:] = True
    compiled = minidynamo.compile(encoder.eval(), backend=backend)
    for wanted in (True, False, True):  # with a mask of no padding, too
        given = mask if wanted else torch.zeros_like(mask)
        with torch.no_grad():
            expected, got = [f(x, src_key_padding_mask=given) for f in (encoder, compiled)]
        torch.testing.assert_close(got, expected)
        assert (got[0, 3:] == 0).all() == wanted


@torch.no_grad()
def test_attention_with_its_weights_and_without():
    module, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(3, 5, 8)
    attend = lambda need: [*(made := module(x, x, x, need_weights=need)), made[1] is None]  # noqa
    for wants in (True, False):
        torch.testing.assert_close(minidynamo.compile(attend, fullgraph=True)(wants), attend(wants))


@pytest.mark.parametrize("kind", ["Adam", "RAdam", "NAdam", "Adamax", "Adadelta", "Rprop"])
@pytest.mark.parametrize("capturable", [True, False])
def test_optimizers_refuse_what_they_refuse_in_eager(kind, capturable):
    first = nn.Parameter(torch.ones(3))
    first.grad = torch.full((3,), 0.5)
    results = []
    for wrap in (lambda f: f, lambda f: minidynamo.compile(f, backend="eager")):
        parameter = copy.deepcopy(first)
        parameter.grad = first.grad.clone()
        try:
            wrap(getattr(torch.optim, kind)([parameter], capturable=capturable).step)()
        except Exception as error:
            results.append(type(error))
        else:
            results.append(str(parameter))
    assert results[0] == results[1]
