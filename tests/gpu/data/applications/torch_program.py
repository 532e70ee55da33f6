"""A PyTorch program: a raw kernel on tensors, eagerly and in a CUDA graph; prints a checksum."""

import time
from pathlib import Path

import torch

TEXT = Path(__file__).with_name("silu_kernel.cuh").read_text()
SOURCE = f'extern "C" {TEXT.partition("*/")[2].strip()}'


def raw_kernel():
    """A function of grid, block and arguments: by CuPy, or else by PyTorch's own compiler."""
    try:
        import cupy
    except ImportError:
        kernel = torch.cuda._compile_kernel(SOURCE, "silu_kernel")  # noqa: SLF001 - PyTorch has no other name for it
        return lambda x, y, n: kernel(((n + 2047) // 2048, 1, 1), (64, 1, 1), (x, y, n))
    kernel = cupy.RawKernel(SOURCE, "silu_kernel")

    def launch(x, y, n):
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            arguments = (cupy.asarray(x), cupy.asarray(y), cupy.int32(n))
            kernel(((n + 2047) // 2048,), (64,), arguments)

    return launch


def main():
    silu = raw_kernel()
    torch.manual_seed(0)
    total = 0.0
    sizes = ((65536, 200), (1 << 20, 100), (4000007, 50))
    inputs = [torch.randn(n, device="cuda") for n, _ in sizes]
    outputs = [torch.zeros_like(x) for x in inputs]
    for x, y in zip(inputs, outputs, strict=True):
        silu(x, y, x.numel())
    torch.cuda.synchronize()
    began = time.perf_counter()
    for (n, times), x, y in zip(sizes, inputs, outputs, strict=True):
        for _ in range(times):
            silu(x, y, n)
            y.mul_(0.5)
    torch.cuda.synchronize()
    eager = time.perf_counter() - began
    total += sum(y.double().sum().item() for y in outputs)

    stream = torch.cuda.Stream()
    x, y = inputs[1][:700000].clone(), torch.empty(700000, device="cuda")
    with torch.cuda.stream(stream):
        silu(x, y, 65536)
        y.mul_(1.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        x.mul_(1.001)
        silu(x, y, 700000)
        y.mul_(2.0)
    began = time.perf_counter()
    for _ in range(100):
        graph.replay()
    torch.cuda.synchronize()
    replayed = time.perf_counter() - began
    total += y.double().sum().item()
    print(f"checksum {total:.4f}")
    print(f"eager {eager * 1e3:.3f} ms, graph {replayed * 1e3:.3f} ms")


main()
