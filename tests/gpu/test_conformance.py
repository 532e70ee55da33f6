"""The CUDA adapters obey the ports on a real GPU."""

from functools import cache

import pytest

from tests.conformance.device_backend import DeviceBackendConformance
from tests.gpu.rig import binary_of
from tuner.plan import Binary
from workers.backends.cuda.device import open_device

pytestmark = pytest.mark.gpu

BODIES = {
    "affine": "if (i < n) out[i] = 2.0f * x[i] + y[i];",
    "nothing": "",
    "behind": "if (i == 0) out[n] = 1.0f;",
    "before": "if (i == 0) out[-1] = 1.0f;",
    "overwrite": "if (i == 5) x[i] = 1.0f;",
    "add": "if (i < n) out[i] += x[i];",
    "counts": "if (i < n) out[i] += ++launches[i];",
    "staged": "if (i < n) { y[i] = x[i]; out[i] = y[i]; }",
}


class TestCudaDevice(DeviceBackendConformance):
    @pytest.fixture
    def backend(self):
        device = open_device(0)
        self.device = device.device
        yield device
        device.close()

    def compiled(self, entry: str) -> Binary:
        return compiled(self.device, entry)


@cache
def compiled(device, entry: str) -> Binary:
    source = f"""__device__ int launches[1024];
extern "C" __global__ void {entry}(float* out, float* x, float* y, int n) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  {BODIES[entry]}
}}"""
    return binary_of(device, source, entry)
