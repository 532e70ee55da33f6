"""Small experiments and templates for tests, built in Python."""

from tuner.experiment.fields import Source
from tuner.experiment.model import (
    Argument,
    Experiment,
    Kernel,
    Launch,
    ShapeBinding,
    Shapes,
    Template,
)
from tuner.expressions import Expression

parse = Expression.parse


def launch(
    grid=("ceil_div(n, 64)",), block=(64,), shared_bytes=0, cluster=(), dependent=False, **rest
):
    return Launch(
        grid=tuple(map(parse, grid)),
        block=tuple(map(parse, block)),
        shared_bytes=parse(shared_bytes),
        cluster=tuple(map(parse, cluster)),
        dependent=parse(dependent),
        **rest,
    )


def template(parameters, constraints=(), steps=None, defines=None, **rest):
    return Template(
        source=Source(name="template.cl", text="// template"),
        entry=rest.pop("entry", "scale"),
        parameters=parameters,
        constraints=tuple(map(parse, constraints)),
        launches=tuple(steps or (launch(),)),
        defines={name: parse(text) for name, text in (defines or {}).items()},
        **rest,
    )


def experiment(*shapes, domain=(), steps=None, options=(), entry="scale", language="opencl"):
    return Experiment(
        version=1,
        name="scale",
        kernel=Kernel(
            language=language,
            source=Source(name="scale.cl", text="// baseline"),
            entry=entry,
            options=tuple(options),
            launches=tuple(steps or (launch(),)),
        ),
        arguments=(
            Argument(name="x", kind="inout", dtype="float32", shape=(parse("n"),)),
            Argument(name="table", kind="constant", dtype="float32", shape=(parse(4),)),
            Argument(name="n", kind="scalar", dtype="int32", value=parse("n")),
        ),
        shapes=Shapes(
            domain=tuple(map(parse, domain)),
            tune=tuple(ShapeBinding(symbols) for symbols in shapes or ({"n": 256},)),
        ),
    )
