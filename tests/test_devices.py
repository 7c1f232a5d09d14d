"""The registries of devices and languages: what a program does where none is registered."""

import dataclasses

import pytest
import torch

import miniinductor
import miniinductor.compile  # noqa: F401  # which fills the tables
from miniinductor import devices
from miniinductor.devices import recomputes


def test_what_is_registered():
    assert devices.language_of(torch.device("cpu")).name == "cpp"
    assert devices.language_of(torch.device("cuda", 1)).name == "triton"
    assert devices.why_not(torch.device("cpu")) is None
    assert recomputes(torch.device("cuda")) and not recomputes(torch.device("cpu"))


def test_a_name_is_registered_once(monkeypatch):
    cuda, triton = devices.DEVICES["cuda"], devices.LANGUAGES["triton"]
    for register, entry in (
        (devices.register_device, devices.Device("cuda")),
        (devices.register_language, dataclasses.replace(triton, most_pointers=1)),
    ):
        with pytest.raises(ValueError, match="is registered already"):
            register(entry)
    assert devices.DEVICES["cuda"] is cuda and devices.LANGUAGES["triton"] is triton
    monkeypatch.delitem(devices.DEVICES, "cuda")  # (put back afterwards)
    devices.register_device(devices.Device("cuda", arena_limit=1))
    assert devices.entry_of(torch.device("cuda")).arena_limit == 1


def test_a_device_without_kernels():
    assert devices.why_not(torch.device("meta")) == "there is no code generator for device meta"
    assert devices.entry_of(torch.device("meta")).language == ""
    with pytest.raises(NotImplementedError, match="no code generator for device xla"):
        devices.language_of(torch.device("xla"))


@pytest.mark.parametrize("gone", ["device", "language"])
def test_a_program_on_such_a_device_runs_eagerly(monkeypatch, gone):
    if gone == "device":
        monkeypatch.delitem(devices.DEVICES, "cuda")
    else:
        monkeypatch.delitem(devices.LANGUAGES, "triton")
    graph = torch.fx.symbolic_trace(lambda x: (x + 1,))
    with torch._subclasses.fake_tensor.FakeTensorMode():
        x = torch.empty(3, device="cuda")
    record = miniinductor.compile_fx(graph, [x]).record
    assert record.notes == ["runs eagerly: there is no code generator for device cuda:0"]


def test_a_language_that_is_not_there(monkeypatch):
    monkeypatch.delitem(devices.LANGUAGES, "triton")
    with miniinductor.config.patch(cpu_backend="triton"):
        compiled = miniinductor.compile_fx(
            torch.fx.symbolic_trace(lambda x: (x + 1,)), [torch.ones(3)]
        )
    assert compiled.record.notes_of("no code generator for device cpu")
    assert torch.equal(compiled(torch.ones(3))[0], torch.full((3,), 2.0))


def test_recorded_calls_are_refused_without_a_gpu():
    graph = torch.fx.symbolic_trace(lambda x: (x + 1,))
    compiled = miniinductor.compile_fx(graph, [torch.ones(3)], mode="reduce-overhead")
    assert compiled.record.notes == ["no CUDA graph: the graph does not run on a GPU"]
