"""The process's and the thread's state, changed inside of a frame: what follows in the frame sees
it, and so does the caller."""

import pytest
import torch

import minidynamo

dtype, cudnn, mkldnn = torch.get_default_dtype, torch.backends.cudnn, torch.backends.mkldnn
SET = {  # name -> (what sets it, a value, the usual one, what reads it)
    "dtype": (torch.set_default_dtype, torch.float64, torch.float32, dtype),
    "half": (torch.set_default_dtype, torch.bfloat16, torch.float32, dtype),
    "type": (torch.set_default_tensor_type, torch.DoubleTensor, torch.FloatTensor, dtype),
    "device": (torch.set_default_device, "meta", "cpu", torch.get_default_device),
    "deterministic": (
        *(torch.use_deterministic_algorithms, True, False),
        torch.are_deterministic_algorithms_enabled,
    ),
    "debug": (torch.set_deterministic_debug_mode, 1, 0, torch.get_deterministic_debug_mode),
    "threads": (torch.set_num_threads, 2, 1, torch.get_num_threads),
    "precision": (
        *(torch.set_float32_matmul_precision, "high", "highest"),
        torch.get_float32_matmul_precision,
    ),
    "flush": (torch.set_flush_denormal, True, False, lambda: None),
    "warn": (torch.set_warn_always, True, False, torch.is_warn_always_enabled),
    "grad": (torch.set_grad_enabled, False, True, torch.is_grad_enabled),
    "autocast": (
        *(lambda on: torch.set_autocast_enabled("cpu", on), True, False),
        lambda: torch.is_autocast_enabled("cpu"),
    ),
    "autocast dtype": (
        *(lambda dtype: torch.set_autocast_dtype("cpu", dtype), torch.float16, torch.bfloat16),
        lambda: torch.get_autocast_dtype("cpu"),
    ),
    "cudnn": (lambda on: setattr(cudnn, "benchmark", on), True, False, lambda: cudnn.benchmark),
    "mkldnn": (mkldnn.set_flags, False, True, lambda: mkldnn.is_available()),
    "anomaly": (torch.autograd.set_detect_anomaly, True, False, torch.is_anomaly_enabled),
}


def made(x):
    """What the state decides, where it may."""
    ints = torch.arange(3)
    small = x * 1e-30 * 1e-10
    return [
        *(torch.ones(2), ints / 2, ints.sqrt(), torch.tensor(1.5), x + torch.tensor(1.5)),
        *(torch.rand(2), torch.hann_window(4).dtype, torch.linspace(0, 1, 3), torch.mean(x)),
        *(torch.full((2,), 1.5), x[None] @ x[:, None], (x * 2).requires_grad, x.new_ones(2)),
        small,
    ]


def programs(setter, value, usual, read):
    def around(x):
        before = made(x), read()
        setter(value)
        inner = made(x), read()
        empty = torch.empty(3) if torch.are_deterministic_algorithms_enabled() else None
        setter(usual)
        return before, inner, empty, made(x), read()

    def left(x):
        y = x + 1
        setter(value)
        return y, made(x), read()

    def over_a_break(x):
        setter(value)
        y = made(x)
        minidynamo.graph_break()
        z = made(x)
        setter(usual)
        return y, z, made(x)

    return around, left, over_a_break


@pytest.fixture
def settable():
    """Other tests import what freezes the flags of torch's backends, and may leave a dtype."""
    before = torch.get_autocast_dtype("cpu")
    allowed = torch.backends.__allow_nonbracketed_mutation
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    with allowed():
        yield
    torch.set_autocast_dtype("cpu", before)


@pytest.mark.usefixtures("settable")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", SET)
def test_what_follows_sees_what_the_frame_has_set(name, backend):
    setter, value, usual, read = SET[name]
    x = torch.tensor([0.3, 0.7])
    threads = torch.get_num_threads()
    for program in programs(setter, value, usual, read):
        results = []
        compiled = minidynamo.compile(program, backend=backend)
        for function in (program, compiled, compiled):
            torch.manual_seed(0)
            try:
                results.append((str(function(x)), str(read())))
            except RuntimeError as error:  # a product of the devices meta and cpu
                results.append(str(error))
            finally:
                setter(usual)
                torch.set_num_threads(threads)
                if name == "device":
                    torch.set_default_device(None)
        assert results[1:] == results[:1] * 2, program.__name__
