// Host code that is compiled behind the bundled SiLU kernel, before and after `apply`.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                    \
  do {                                                                                 \
    const cudaError_t found = (call);                                                  \
    if (found != cudaSuccess) {                                                        \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorString(found));      \
      std::exit(1);                                                                    \
    }                                                                                  \
  } while (0)

static void activate(__half* out, const __half* in, int tokens, int d, cudaStream_t stream) {
  const int threads = d / 8 < 1024 ? d / 8 : 1024;
  silu_and_mul<<<tokens, threads, 0, stream>>>(out, in, d);
}

static double sum_of(const __half* out, size_t count) {
  std::vector<__half> host(count);
  CHECK(cudaMemcpy(host.data(), out, count * sizeof(__half), cudaMemcpyDeviceToHost));
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += double(__half2float(host[i])) * double(i % 97);
  return sum;
}

int main() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  const int sizes[][2] = {{16, 4096}, {64, 8192}, {33, 4104}, {512, 11008}};
  for (const auto& size : sizes) {
    const int tokens = size[0], d = size[1];
    const size_t count = size_t(tokens) * d;
    std::vector<__half> host(2 * count);
    for (size_t i = 0; i < 2 * count; ++i) host[i] = __float2half(float(i * 7919 % 2003) / 500 - 2);
    __half *in, *out;
    CHECK(cudaMalloc(&in, 2 * count * sizeof(__half)));
    CHECK(cudaMalloc(&out, count * sizeof(__half)));
    CHECK(cudaMemcpy(in, host.data(), 2 * count * sizeof(__half), cudaMemcpyHostToDevice));
    activate(out, in, tokens, d, stream);
    CHECK(cudaStreamSynchronize(stream));
    const double eager = sum_of(out, count);

    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaMemset(out, 0, count * sizeof(__half)));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 20; ++i) activate(out, in, tokens, d, stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    const double replayed = sum_of(out, count);
    cudaEvent_t began, ended;
    CHECK(cudaEventCreate(&began));
    CHECK(cudaEventCreate(&ended));
    CHECK(cudaEventRecord(began, stream));
    for (int i = 0; i < 20; ++i) CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaEventRecord(ended, stream));
    CHECK(cudaStreamSynchronize(stream));
    float device_ms = 0;
    CHECK(cudaEventElapsedTime(&device_ms, began, ended));

    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 500; ++i) activate(out, in, tokens, d, stream);
    const std::chrono::duration<double, std::micro> host_us =
        std::chrono::steady_clock::now() - start;
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGetLastError());

    int served = 0;
#ifndef KERNELWRIGHT_OFF
    const int threads = d / 8 < 1024 ? d / 8 : 1024;
    served = kernelwright_app_silu_and_mul::launch(tokens, threads, 0, stream, out, in, d);
    CHECK(cudaStreamSynchronize(stream));
#endif
    std::printf("%d %d %d %.6f %.6f %.3f %.3f\n", tokens, d, served, eager, replayed,
                device_ms * 1000 / 400, host_us.count() / 500);
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
  }
  return 0;
}
