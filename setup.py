"""The C extensions; everything else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "minidynamo._frame_hook",
            ["minidynamo/frame_hook.c"],
            extra_compile_args=["-O2"],
            depends=[
                f"minidynamo/extras/{name}.h"
                for name in ("other_evaluators", "hand_over", "newer_pythons", "switched")
            ],
        ),
        Extension("minidynamo._layouts", ["minidynamo/layouts.c"], extra_compile_args=["-O2"]),
        Extension(
            "miniinductor.gpu._launcher",
            ["miniinductor/gpu/launcher.c"],
            extra_compile_args=["-O2"],
        ),
    ]
)
