"""The C extensions; everything else is in pyproject.toml."""

from setuptools import Extension, setup


def extension(name: str, source: str, depends: tuple[str, ...] = ()) -> Extension:
    return Extension(name, [source], extra_compile_args=["-O2"], depends=list(depends))


setup(
    ext_modules=[
        extension(
            "minidynamo.frame._frame_hook",
            "minidynamo/frame/frame_hook.c",
            ("minidynamo/frame/switched.h",),
        ),
        extension("minidynamo.guards._layouts", "minidynamo/guards/layouts.c"),
        extension(
            "miniinductor.codegen.triton._launcher", "miniinductor/codegen/triton/launcher.c"
        ),
    ]
)
