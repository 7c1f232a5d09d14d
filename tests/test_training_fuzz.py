"""Random differentiable programs with views and in-place writes: outputs, aliasing, written inputs
and gradients are eager's.

MINI_FUZZ=1000 pytest tests/test_training_fuzz.py       # `make fuzz-training`
"""

import contextlib
import linecache
import os
import re

import pytest
import torch
import torch.utils._pytree as pytree
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from test_training import run, sharing

import minidynamo

EXAMPLES = int(os.environ.get("MINI_FUZZ", "0"))
POINTWISE = [
    "torch.sin({a})",
    "torch.tanh({a})",
    "torch.sigmoid({a})",
    "{a} * 0.5",
    "torch.exp({a}).clamp(max=2)",
    "torch.relu({a})",
    "-{a}",
    "{a} + {b}",
    "{a} * {b}",
    "{a} - {b} * 0.5",
    "torch.where({a} > 0.1, {a}, {b})",
    "torch.maximum({a}, {b})",
    "torch.cat([{a}, {b}])",
    "torch.stack([{a}, {b}])",
    "{a} @ {b}",
    "{a} / (1 + {b} * {b})",
]
REDUCE = [
    "{a}.softmax(-1)",
    "{a}.sum(0)",
    "{a}.mean(-1, keepdim=True)",
    "{a}.amax(0)",
    "{a}.var(-1, unbiased=False)",
    "{a}.sum()",
    "{a} - {a}.mean(0, keepdim=True)",
    "torch.nn.functional.layer_norm({a}, {a}.shape[-1:])",
    "{a}.cumsum(0)",
]
VIEWS = [
    "{a}.view(-1)",
    "{a}.t()",
    "{a}[{k}:]",
    "{a}[::2]",
    "{a}.unsqueeze({k})",
    "{a}.squeeze()",
    "{a}.expand(2, *{a}.shape)",
    "{a}.chunk(2, -1)[0]",
    "{a}.chunk(2, 0)[-1]",
    "{a}.reshape(-1)",
    "{a}.transpose(0, -1)",
    "{a}.narrow(-1, 0, {k})",
    "{a}.diagonal()",
    "{a}.detach()",
    "{a}.unbind(0)[{k}]",
    "{a}.select(-1, {k})",
    "{a}[..., {k}]",
    "{a}.flatten(0, 1)",
    "{a}.split({k}, 0)[0]",
]
COPIES = [
    "{a}.clone()",
    "{a}.contiguous()",
    "{a}[torch.tensor([0, 0, {k}])]",
    "torch.flip({a}, [0])",
    "{a}.roll({k}, 0)",
    "{a}.index_select(0, torch.tensor([1, 0, 1]))",
    "torch.nn.functional.pad({a}, (1, {k}))",
]
WRITES = [
    "{a}.mul_(0.5)",
    "{a}.add_({b})",
    "{a}.sin_()",
    "{a}[{k}] = 0.5",
    "{a}[{k}:].mul_({b})",
    "{a}.copy_({b})",
    "{a}.zero_()",
    "{a}.view(-1)[{k}:3].add_(1)",
    "{a}.t().add_({b})",
    "{a}.clamp_(-1, 1)",
    "{a}.masked_fill_({b} > 0.1, 0.5)",
    "{a}[..., {k}] = {b}",
    "{a}.index_add_(0, torch.tensor([0, 0]), {b}[:2])",
    "{a}[torch.tensor([0, 1])] = {b}[:2]",
    "{a}.mul_({b}).add_(1)",
    "{a}.detach().mul_(2)",
    "{a}.unsqueeze_(0)",
    "{a} += {b}",
    "{a}[0:2, 1:].copy_({b}[0:2, 1:])",
    "{a}.transpose(0, -1)[0].tanh_()",
]
KINDS = [POINTWISE, POINTWISE, REDUCE, VIEWS, VIEWS, COPIES, WRITES, WRITES]
STEP = st.tuples(
    st.integers(0, len(KINDS) - 1),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 2),
    st.integers(0, 7),
)


def inputs():
    g = torch.Generator().manual_seed(5)
    make = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    return (
        make(4, 6).requires_grad_(),
        make(6, 4).t().requires_grad_(),
        make(4, 6),
        make(6).requires_grad_(),
    )


def reads_what_it_writes(text, operand, scope):
    """Does the write `text` read, through `operand`, elements that it changes at other places?
    Eager's result then depends on the order in which its kernel goes through them (it checks the
    simple cases only)."""
    target = (
        text.split(" ")[0] if "=" in text.split("(")[0] else re.match(r"(.*?)\.\w+_\(", text)[1]
    )
    with torch.no_grad():
        written, read = eval(target, scope), scope[operand]
    if written.untyped_storage()._cdata != read.untyped_storage()._cdata:
        return False
    if (written.data_ptr(), written.shape, written.stride()) == (
        read.data_ptr(),
        read.shape,
        read.stride(),
    ):
        return False
    memory = torch.arange(written.untyped_storage().nbytes() // 8)
    places = [
        set(memory.as_strided(t.shape, t.stride(), t.storage_offset()).flatten().tolist())
        for t in (written, read)
    ]
    return bool(places[0] & places[1])


def program(steps, picks):
    """Source text of a function of x, y, z, w.  A step that eager cannot run on these shapes, or
    whose result is not defined, is left out."""
    names, lines = ["x", "y", "z", "w"], []
    scope = {"torch": torch, **{n: t.detach().clone() for n, t in zip(names, inputs())}}
    for kind, which, a, b, k, quiet in steps:
        text = KINDS[kind][which % len(KINDS[kind])].format(
            a=names[-1 - a % len(names)], b=names[-1 - b % len(names)], k=k
        )
        result = None if KINDS[kind] is WRITES else f"v{len(lines)}"
        line = text if result is None else f"{result} = {text}"
        trial = dict(scope)
        try:
            if (
                result is None
                and "{b}" in KINDS[kind][which % len(KINDS[kind])]
                and reads_what_it_writes(text, names[-1 - b % len(names)], trial)
            ):
                continue
            with torch.no_grad():
                exec(line, trial)
            if result is not None and (trial[result].numel() > 500 or trial[result].dim() > 4):
                continue
        except Exception:
            continue
        scope = trial
        names += [result] if result is not None else []
        lines.append(line if quiet else f"with torch.no_grad(): {line}")
    chosen = list(dict.fromkeys([names[-1]] + [names[p % len(names)] for p in picks]))
    return "\n".join(
        [
            "def f(x, y, z, w):",
            *[f"    {line}" for line in lines],
            f"    return {', '.join(chosen)},",
        ]
    )


def compare(text, backend):
    """Left out: graph breaks.  One saves all that any of its outputs may need, and autograd checks
    it all against later writes."""
    file = f"<program {abs(hash(text))}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope = {"torch": torch}
    exec(compile(text, file, "exec"), scope)
    minidynamo.reset()
    with minidynamo.config.patch(raise_internal_errors=True):
        try:
            want = run(scope["f"], inputs())
        except RuntimeError as error:
            # autograd refuses: so must we, except for writes to one of several views, and to a view
            # of what requires gradients since it was
            # taken: then eager refuses unless somebody looked at the view's grad_fn in between
            quirk = any(
                words in str(error)
                for words in ("multiple views", "leaf Variable that requires grad")
            )
            with contextlib.suppress(RuntimeError) if quirk else pytest.raises(RuntimeError):
                run(minidynamo.compile(scope["f"], backend=backend), inputs())
            return
        got = run(minidynamo.compile(scope["f"], backend=backend), inputs())
    for ours, eager in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
        assert (ours is None) == (eager is None)
        if isinstance(eager, torch.Tensor):
            assert (ours.shape, ours.dtype, ours.requires_grad) == (
                eager.shape,
                eager.dtype,
                eager.requires_grad,
            )
            torch.testing.assert_close(ours, eager, rtol=1e-9, atol=1e-9, equal_nan=True)
    assert sharing(got) == sharing(want)


SETTINGS = dict(
    deadline=None, database=None, derandomize=not EXAMPLES, suppress_health_check=list(HealthCheck)
)
PROGRAM = st.builds(
    program, st.lists(STEP, min_size=2, max_size=12), st.lists(st.integers(0, 30), max_size=3)
)


def test_writes_whose_result_eager_does_not_define_are_not_drawn():
    z = torch.randn(4, 4, dtype=torch.float64)
    scope = {
        "z": z,
        "v0": z.select(-1, 0),
        "row": z[1],
        "other": torch.randn(4, 4, dtype=torch.float64),
        "same": z.view(4, 4),
    }
    for text, operand, undefined in (
        ("z.t().add_(v0)", "v0", True),
        ("z.add_(v0)", "v0", True),
        ("z.t().add_(z)", "z", True),
        ("z.add_(z)", "z", False),
        ("z.mul_(same).add_(1)", "same", False),
        ("z[0].add_(row)", "row", False),
        ("z[0:2] = row", "row", True),
        ("z += other", "other", False),
        ("z.view(-1)[0:3].add_(1)", "z", True),
    ):
        assert reads_what_it_writes(text, operand, scope) == undefined, text


@settings(max_examples=EXAMPLES or 80, **SETTINGS)
@given(PROGRAM)
def test_joint_graphs(text):
    note(text)
    compare(text, "aot_eager")


@settings(max_examples=EXAMPLES or 20, **SETTINGS)
@given(PROGRAM)
def test_generated_code(text):
    note(text)
    compare(text, "inductor")
