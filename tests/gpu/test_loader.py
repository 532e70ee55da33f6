"""The loader on a GPU: CuPy arrays and PyTorch tensors, on the caller's stream and in graphs."""

import numpy as np
import pytest

from tests.tuner.results.runs import finished_run
from tuner.errors import SpecError
from tuner.experiment.load import load_experiment
from tuner.export.bundle import export_files
from workers.backends.cuda.driver import described, import_cuda
from workers.loader.kernel import TunedKernel

pytestmark = pytest.mark.gpu

TOKENS, D = 64, 4096
EPS = 1e-6


@pytest.fixture(scope="module")
def kernel():
    """The bundled normalisation, its first configuration told to be the fastest."""
    runtime = import_cuda().runtime
    device = described(runtime.getDeviceProperties(0), runtime.driverGetVersion())
    experiment = load_experiment("deploy/experiments/fused_add_rmsnorm/cuda.yaml")
    first = {name: values[0] for name, values in experiment.template.parameters.items()}
    count = len((*experiment.shapes.tune, *experiment.shapes.held_out))
    history = finished_run(experiment, device, [1000.0] * count, [(first, [500.0] * count)])
    return TunedKernel(export_files(history))


@pytest.fixture(scope="module")
def operator(kernel):
    pytest.importorskip("torch")
    return kernel.torch_op("kernelwright_gpu::add_norm")


def inputs(rng=0):
    random = np.random.default_rng(rng)
    shapes = ((TOKENS, D), (TOKENS, D), (D,))
    return [random.standard_normal(shape).astype(np.float16) for shape in shapes]


def expected(x, residual, weight):
    total = x.astype(np.float32) + residual.astype(np.float32)
    norm = total / np.sqrt((total**2).mean(axis=1, keepdims=True) + EPS)
    return norm * weight.astype(np.float32)


def close(found, wanted):
    np.testing.assert_allclose(np.asarray(found, np.float32), wanted, rtol=4e-3, atol=4e-3)


def test_cupy_arrays_on_a_stream_of_their_own(kernel):
    cupy = pytest.importorskip("cupy")
    given = inputs()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        arrays = [cupy.asarray(one) for one in given]
        assert kernel.variant(*arrays, eps=EPS) == "general"
        kernel(*arrays, TOKENS, D, EPS)
        stream.synchronize()
    close(cupy.asnumpy(arrays[0]), expected(*given))


def test_misaligned_arrays_and_shapes_outside_the_domain_run_the_baseline(kernel):
    cupy = pytest.importorskip("cupy")
    x, residual, weight = (cupy.asarray(one) for one in inputs())
    room = cupy.zeros(D + 1, np.float16)
    assert kernel.variant(x, residual, room[1:], eps=EPS) == "baseline"
    with pytest.raises(SpecError, match="'weight': its dtype is float32"):
        kernel(x, residual, weight.astype(np.float32), eps=EPS)


def test_a_graph_of_cupy_replays_it(kernel):
    cupy = pytest.importorskip("cupy")
    given = inputs(1)
    arrays = [cupy.asarray(one) for one in given]
    kernel.variant(*arrays, eps=EPS)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        kernel(*arrays, eps=EPS)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    close(cupy.asnumpy(arrays[0]), expected(*given))


# Of PyTorch, which uses them itself.
@pytest.mark.filterwarnings("ignore:.*torch[.]jit.*is deprecated:DeprecationWarning")
def test_tensors_are_taken_eagerly_compiled_and_in_a_graph(kernel, operator):
    torch = pytest.importorskip("torch")

    def run(launch, seed):
        given = inputs(seed)
        tensors = [torch.from_numpy(one).cuda() for one in given]
        launch(*tensors)
        torch.cuda.synchronize()
        close(tensors[0].cpu().numpy(), expected(*given))

    def layer(x, residual, weight):
        operator(x, residual, weight, x.shape[0], x.shape[1], EPS)

    def captured(*tensors):
        kept = [one.clone() for one in tensors]
        operator(*kept, TOKENS, D, EPS)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            operator(*tensors, TOKENS, D, EPS)
        graph.replay()

    run(lambda *tensors: kernel(*tensors, eps=EPS), 2)
    run(layer, 3)
    run(torch.compile(layer, fullgraph=True), 4)
    run(captured, 5)
