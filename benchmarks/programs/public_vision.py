"""Vision models of torchvision and timm, as installed, at three image sizes: CPU seconds a call.

In:   names of models (default: all below), and a file that takes the results as they come.
Out:  per model and compiler the CPU seconds of the three calls, and how many graphs were compiled;
      `wrong` where a result is not eager's, `raises` where the compiler does, `unfinished` where a
      call takes more than `--limit`.

    python -m benchmarks.programs.public_vision --json rows.json      # goes on where it ended

The second size is where sizes become symbols: a compiler that asks expensive questions about them
looks as if it hung.  Graphs run eagerly: the question is what capturing costs.
"""

import argparse
import json
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

import minidynamo
from benchmarks.public_models import load_torchvision
from benchmarks.runner import agrees

SIZES = ((64, 64), (96, 128), (160, 96))
TORCHVISION = """
    alexnet vgg11 resnet18 squeezenet1_1 mobilenet_v2 mobilenet_v3_small shufflenet_v2_x0_5
    mnasnet0_5 regnet_y_400mf googlenet convnext_tiny lraspp_mobilenet_v3_large
    deeplabv3_mobilenet_v3_large fcn_resnet50 swin_t efficientnet_b0 densenet121
""".split()
TIMM = """
    test_byobnet test_convnext test_convnext2 test_efficientnet test_efficientnet_gn test_mambaout
    test_nfnet test_resnet test_vit test_vit2 test_vit3 resnet10t convnext_atto lcnet_050
    ghostnet_050 repvgg_a0 regnetx_002 skresnet18 legacy_seresnet18 poolformer_s12
    poolformerv2_s12 edgenext_xx_small mobilevit_xxs mobilevitv2_050 tinynet_e mnasnet_small
    dla34 resnest14d pvt_v2_b0 xcit_nano_12_p16_224 vit_tiny_patch16_224 starnet_s1
    mambaout_femto focalnet_tiny_srf mobileone_s0 mobilenetv4_conv_small repghostnet_050
    hgnetv2_b0 repvit_m0_9 fastvit_t8 rexnet_100 selecsls42 dpn48b caformer_s18
""".split()
NAMES = [*(f"torchvision {name}" for name in TORCHVISION), *(f"timm {name}" for name in TIMM)]


def build(name: str) -> torch.nn.Module:
    """The model, with random weights."""
    library, kind = name.split()
    torch.manual_seed(0)
    if library == "timm":
        import timm

        sized = dict(dynamic_img_size=True) if "_vit" in f"_{kind}" else {}
        return timm.create_model(kind, **sized).eval()
    from torchvision import models

    home: Any = models.segmentation if "resnet50" in kind or "_v3_large" in kind else models
    return getattr(home, kind)(weights=None, **weightless(kind)).eval()


def weightless(kind: str) -> dict[str, Any]:
    """Arguments without which a model would be made with weights, slowly or with more results."""
    if "resnet50" in kind or "_v3_large" in kind:
        return dict(weights_backbone=None)
    return dict(aux_logits=False, init_weights=False) if kind == "googlenet" else {}


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TimeoutError after so many CPU seconds of this process."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def measured(model: torch.nn.Module, compiler: Callable, limit: float) -> dict[str, Any]:
    """What one compiler does with the three sizes."""
    graphs: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    minidynamo.reset()
    torch._dynamo.reset()
    compiled = compiler(model, backend=backend)
    seconds: list[float] = []
    for size in SIZES:
        x = torch.randn(1, 3, *size)
        expected = model(x)
        start = time.process_time()
        try:
            with limited(limit):
                found = compiled(x)
        except TimeoutError:
            return dict(seconds=seconds, unfinished=size)
        except Exception as error:
            return dict(seconds=seconds, raises=f"{type(error).__name__} at {size}")
        seconds.append(round(time.process_time() - start, 2))
        if not agrees(expected, found):
            return dict(seconds=seconds, graphs=len(graphs), wrong=size)
    return dict(seconds=seconds, graphs=len(graphs))


def summary(rows: dict[str, Any]) -> str:
    """Both compilers' medians over the models that both finished, and what either did not."""
    whole = [
        row for row in rows.values() if all(len(side["seconds"]) == 3 for side in row.values())
    ]
    lines = [f"{len(rows)} models, {len(whole)} finished by both"]
    for side in ("ours", "torch.compile"):
        bad = [
            name
            for name, row in rows.items()
            if {"wrong", "unfinished", "raises"} & row[side].keys()
        ]
        medians = [statistics.median(row[side]["seconds"][n] for row in whole) for n in range(3)]
        graphs = sum(row[side]["graphs"] for row in whole)
        lines.append(f"{side}: medians {medians} s, {graphs} graphs, without results: {bad}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="vision models at three image sizes")
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--json", type=Path, default=Path("public_vision.json"))
    parser.add_argument("--limit", type=float, default=90, help="CPU seconds of one call")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no model after this time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load_torchvision()
    rows = json.loads(options.json.read_text()) if options.json.exists() else {}
    began = time.time()
    for name in options.names:
        if name in rows or time.time() - began > options.seconds:
            continue
        model = build(name)
        with torch.no_grad():
            rows[name] = {
                side: measured(model, compiler, options.limit)
                for side, compiler in dict(
                    ours=minidynamo.compile, **{"torch.compile": torch.compile}
                ).items()
            }
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
        print(name, rows[name], flush=True)
    print(summary(rows))


if __name__ == "__main__":
    main()
