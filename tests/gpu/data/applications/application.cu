/* An application with a static CUDA runtime: `application [tiny | small]`.
 *
 * Launches silu_kernel at four sizes and scale_kernel (a pointer in a struct), eagerly and in a
 * graph, also on memory of a pool. Prints a checksum and its times; with `tiny` and `small` the time
 * of a launch on the host alone.
 */
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

#include "silu_kernel.cuh"

#define CHECK(call) \
    do { \
        cudaError_t error = (call); \
        if (error) { \
            printf("%s: %s\n", #call, cudaGetErrorString(error)); \
            exit(3); \
        } \
    } while (0)

struct Box {
    float *out;
    long long unused;
};

__global__ void scale_kernel(Box box, float factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        box.out[i] *= factor;
}

__global__ void empty_kernel(int *p, int v)
{
    if (v == -1)
        *p = v;
}

static double now()
{
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

static cudaStream_t stream;

static void silu(const float *in, float *out, int n)
{
    silu_kernel<<<(n + 2047) / 2048, 64, 0, stream>>>(in, out, n);
}

static void scale(float *out, float factor, int n)
{
    scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(Box{out, 0}, factor, n);
}

/* Host time of a launch: the best of 40 bursts that fit into the stream's queue. */
template <class Launch> static void time_launches(const char *name, Launch launch)
{
    double best = 1e9;
    for (int burst = 0; burst < 40; burst++) {
        double began = now();
        for (int i = 0; i < 500; i++)
            launch();
        double seconds = (now() - began) / 500;
        CHECK(cudaStreamSynchronize(stream));
        best = seconds < best ? seconds : best;
    }
    printf("%s launch %.3f us\n", name, best * 1e6);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    const int sizes[] = {1 << 16, 1 << 20, 4000007}, times[] = {300, 200, 100}, most = sizes[2];
    float *in, *out, *pooled;
    std::vector<float> host(most);
    double sum = 0;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&in, most * sizeof(float)));
    CHECK(cudaMalloc(&out, most * sizeof(float)));
    CHECK(cudaMallocAsync(&pooled, sizeof(float) << 20, stream));
    for (int i = 0; i < most; i++)
        host[i] = std::sin(i * 0.37f) * 5;
    CHECK(cudaMemcpy(in, host.data(), most * sizeof(float), cudaMemcpyHostToDevice));
    if (!strcmp(mode, "tiny")) {
        time_launches("empty", [&] { empty_kernel<<<1, 32, 0, stream>>>((int *)in, 0); });
        return 0;
    }
    if (!strcmp(mode, "small")) {
        time_launches("silu", [&] { silu(in, out, 1024); });
        return 0;
    }
    auto add = [&](float *from, int n) {
        CHECK(cudaMemcpy(host.data(), from, n * sizeof(float), cudaMemcpyDeviceToHost));
        for (int i = 0; i < n; i += 7)
            sum += host[i] * (1 + i % 5);
    };
    silu(in, out, 1024);
    scale(out, 1.0f, 1024);
    CHECK(cudaStreamSynchronize(stream));
    double began = now();
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < times[s]; i++) {
            silu(in, out, sizes[s]);
            scale(out, 0.5f, sizes[s]);
        }
    silu(in, pooled, 1 << 20);
    CHECK(cudaStreamSynchronize(stream));
    double eager = (now() - began) * 1e3;
    add(out, most);
    add(pooled, 1 << 20);

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    const int n = 3 << 20;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    scale(in, 1.01f, n);
    silu(in, out, n);
    scale(out, 2.0f, n);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    began = now();
    for (int i = 0; i < 100; i++)
        CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    double replayed = (now() - began) * 1e3;
    add(out, n);
    printf("checksum %.4f\neager %.3f ms, graph %.3f ms\n", sum, eager, replayed);
    return 0;
}
