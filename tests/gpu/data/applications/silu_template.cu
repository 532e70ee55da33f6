/* VEC elements at a time where both pointers allow it, ITEMS times in each thread. */
struct alignas(4 * VEC) Pack {
    float v[VEC];
};

__global__ void __launch_bounds__(BLOCK) silu_tuned(const float *in, float *out, int n)
{
    long first = ((long)blockIdx.x * BLOCK * ITEMS + threadIdx.x) * VEC;
    bool aligned = (((size_t)in | (size_t)out) & (4 * VEC - 1)) == 0;
#pragma unroll
    for (int item = 0; item < ITEMS; item++, first += (long)BLOCK * VEC) {
        if (aligned && first + VEC <= n) {
            Pack pack = *reinterpret_cast<const Pack *>(in + first);
#pragma unroll
            for (int k = 0; k < VEC; k++)
                pack.v[k] /= 1.0f + expf(-pack.v[k]);
            *reinterpret_cast<Pack *>(out + first) = pack;
        } else {
            for (int k = 0; k < VEC; k++)
                if (first + k < n) {
                    float x = in[first + k];
                    out[first + k] = x / (1.0f + expf(-x));
                }
        }
    }
}
