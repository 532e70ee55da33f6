/* The activation x / (1 + exp(-x)), 32 consecutive elements a thread: slow, to leave room. */
__global__ void silu_kernel(const float *in, float *out, int n)
{
    long first = ((long)blockIdx.x * blockDim.x + threadIdx.x) * 32;
    for (int k = 0; k < 32; k++)
        if (first + k < n) {
            float x = in[first + k];
            out[first + k] = x / (1.0f + expf(-x));
        }
}
