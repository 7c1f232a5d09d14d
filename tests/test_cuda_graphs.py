"""When a recording is made, replayed, copied to and refused: `cuda_graphs` with a recording that
runs the graph again, on the CPU.

What only a GPU can show (streams, pools, real recordings) is in `test_gpu`."""

import ctypes
import gc

import pytest
import torch
import torch.nn.functional as F

import minidynamo
import miniinductor
from miniinductor.devices import DEVICES, Device
import miniinductor.languages  # noqa: F401  # which registers the devices
from miniinductor.runtime import cuda_graphs


def by_address(tensor):
    """The same memory, without a reference that keeps it alive: all that a recording knows of its
    inputs."""
    if not tensor.numel():
        return tensor
    count = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    memory = (ctypes.c_char * (count * tensor.element_size())).from_address(tensor.data_ptr())
    return torch.frombuffer(memory, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride())


@pytest.fixture(autouse=True)
def recordings(monkeypatch):
    """Every recording that was made: its number of replays."""
    made = []

    def capture(run, inputs, pool, device):
        inputs = [by_address(t) for t in inputs]
        before = [t.clone() for t in inputs]
        outputs = run(*inputs)
        for tensor, value in zip(
            [*inputs, *outputs], [*before, *[torch.full_like(o, -77) for o in outputs]]
        ):
            tensor.copy_(value)  # recording computes nothing
        made.append(0)
        number = len(made) - 1

        def replay():
            made[number] += 1
            for old, new in zip(outputs, run(*inputs)):
                old.copy_(new)

        return replay, outputs

    alive, call = [], cuda_graphs.GraphedCall.__call__

    def keeping(self, *inputs):
        """Memory that a call gives back may be the next call's by chance: an input that happens to
        lie where it lay before is recorded as one that stays, and recorded anew when it moves.
        Here nothing is given back but what a recording keeps, whose users are counted."""
        kept = getattr(self.pools.get(7), "kept", ())
        alive.extend(t for t in inputs if t.data_ptr() not in kept)
        return call(self, *inputs)

    monkeypatch.setattr(cuda_graphs.GraphedCall, "__call__", keeping)
    monkeypatch.setattr(cuda_graphs, "capture", torch.no_grad()(capture))
    monkeypatch.setattr(cuda_graphs, "current_stream", lambda device: 7)
    monkeypatch.setattr(cuda_graphs, "forget_failed_capture", lambda device: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(cuda_graphs, "refusal", lambda graph: None)
    monkeypatch.setitem(DEVICES, "cpu", Device("cpu", replays_in="runtime.cuda_graphs"))
    torch.manual_seed(0)
    yield made
    minidynamo.reset()


def graphed(function, *inputs):
    graph = torch.fx.symbolic_trace(function)
    return miniinductor.compile_fx(graph, list(inputs), mode="reduce-overhead")


def test_the_second_call_is_recorded_and_outputs_are_copies(recordings):
    xs = [torch.randn(10) for _ in range(5)]
    compiled = graphed(lambda x: (x * 2, x + 1), xs[0])
    outputs = [compiled(x) for x in xs]
    for x, (double, more) in zip(xs, outputs):
        assert torch.equal(double, x * 2) and torch.equal(more, x + 1)
    assert recordings == [4] and compiled.record.notes_of("1 of 1 inputs are copied")


@pytest.mark.parametrize("moves", [False, True])
def test_written_inputs_are_written_once_per_call(recordings, moves):
    def bump(x):
        x.add_(1)
        return (x * 2,)

    x = torch.zeros(10)
    compiled = graphed(bump, x)
    for step in range(1, 6):
        x = x.clone() if moves else x
        version = x._version
        assert compiled(x)[0].eq(2 * step).all() and x.eq(step).all()
        assert x._version > version
    assert recordings == [4]


def train(model, compiled, steps, keep_alive=False):
    """Gradients and losses of some steps, by the plain and by the compiled model."""
    alive = []
    for _ in range(steps):
        x = torch.randn(8, 6)
        results = []
        for function in (model, compiled):
            model.zero_grad()
            loss = function(x).square().sum()
            loss.backward(retain_graph=keep_alive)
            alive.append(loss if keep_alive else None)
            results.append([loss.detach(), *[p.grad.clone() for p in model.parameters()]])
        for want, got in zip(*results):
            torch.testing.assert_close(got, want)


def layers():
    return torch.nn.Sequential(
        torch.nn.Linear(6, 20), torch.nn.GELU(), torch.nn.Linear(20, 5), torch.nn.Tanh()
    )


def test_a_training_step_is_two_recordings(recordings):
    model = layers()
    train(model, minidynamo.compile(model, mode="reduce-overhead"), 6)
    assert recordings == [5, 5]  # the forward half and the backward half


def test_what_a_backward_half_still_needs_is_not_overwritten(recordings):
    model = layers()
    compiled = minidynamo.compile(model, mode="reduce-overhead")
    train(model, compiled, 3)
    xs = [torch.randn(8, 6) for _ in range(3)]
    model.zero_grad()
    losses = [
        compiled(x).square().sum() for x in xs
    ]  # three forward calls before the first backward
    for loss in losses[::-1]:
        loss.backward()
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    for x in xs:
        model(x).square().sum().backward()
    for want, grad in zip([p.grad for p in model.parameters()], got):
        torch.testing.assert_close(grad, want)
    assert recordings == [3, 3]  # only the first of the three was replayed
    del losses, loss
    gc.collect()
    train(model, compiled, 2)
    assert recordings == [5, 5]


def test_on_the_cpu_nothing_is_recorded(monkeypatch):
    monkeypatch.undo()
    compiled = graphed(lambda x: (F.relu(x),), torch.randn(5))
    compiled(torch.randn(5))
    assert compiled.record.notes_of("no CUDA graph: the graph does not run on a GPU")
