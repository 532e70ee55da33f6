"""A tuned kernel as a PyTorch operator: its schema, its fake, its place in a compiled graph.

Runs without a GPU, on stand-ins of CUDA tensors; ``tests/gpu/test_loader.py`` launches.
"""

from dataclasses import replace

import pytest

from tests.tuner.results.runs import finished_run
from tests.tuner.space.devices import cuda_device
from tuner.errors import SpecError
from tuner.experiment.load import load_experiment
from tuner.experiment.model import ShapeBinding
from tuner.export.bundle import export_files
from workers.loader.kernel import TunedKernel
from workers.loader.signature import Signature
from workers.loader.torch_op import schema


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def kernel(torch):
    experiment = load_experiment("deploy/experiments/fused_add_rmsnorm/cuda.yaml")
    first = {name: values[0] for name, values in experiment.template.parameters.items()}
    count = len((*experiment.shapes.tune, *experiment.shapes.held_out))
    device = cuda_device(90)
    history = finished_run(experiment, device, [1000.0] * count, [(first, [500.0] * count)])
    return TunedKernel(export_files(history))


@pytest.fixture(scope="module")
def operator(kernel):
    return kernel.torch_op("kernelwright_test::add_norm")


def tensors(torch, device):
    shapes = ((4, 64), (4, 64), (64,))
    return [torch.empty(shape, dtype=torch.float16, device=device) for shape in shapes]


def test_the_schema_names_what_is_written():
    experiment = load_experiment("deploy/experiments/fused_add_rmsnorm/cuda.yaml")
    assert schema(Signature(experiment)) == (
        "(Tensor(a!) input, Tensor(b!) residual, Tensor weight, SymInt tokens, SymInt d, float eps)"
        " -> ()"
    )


def test_sizes_that_follow_from_no_argument_are_named():
    experiment = load_experiment("deploy/experiments/fused_add_rmsnorm/cuda.yaml")
    (first, *others) = experiment.shapes.tune
    shapes = [ShapeBinding({**one.symbols, "T": "float16", "k": 1}) for one in (first, *others)]
    widened = replace(experiment, shapes=replace(experiment.shapes, tune=tuple(shapes)))
    assert schema(Signature(widened)).endswith("float eps, *, str T, SymInt k) -> ()")


def test_the_fake_runs_on_tensors_without_memory(torch, operator):
    from torch._subclasses import fake_tensor

    with fake_tensor.FakeTensorMode(), torch.device("cuda"):
        assert operator(*tensors(torch, "cuda"), 4, 64, 1e-6) is None


def test_a_compiled_function_has_it_in_one_graph(torch, operator):
    graphs = []

    def capture(graph, _inputs):
        graphs.append(graph)
        return lambda *given: given

    def layer(x, residual, weight):
        operator(x, residual, weight, x.shape[0], x.shape[1], 1e-6)
        return x + 1

    torch.compile(layer, fullgraph=True, dynamic=True, backend=capture)(*tensors(torch, "cpu"))
    assert "kernelwright_test.add_norm" in graphs[0].code


def test_a_name_that_is_taken_or_malformed_is_refused(kernel, operator):
    assert operator is not None
    for name in ("add_norm", "a::b::c"):
        with pytest.raises(SpecError, match="write namespace::name"):
            kernel.torch_op(name)
