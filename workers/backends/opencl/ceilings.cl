// What a device can do at most: a copy, nothing at all, a plain matrix product.
kernel void copy(global uint4 *to, global const uint4 *from, long count)
{
    const long i = get_global_id(0);
    if (i < count) to[i] = from[i];
}

kernel void nothing(void) {}

// c = a b, all n by n with n a multiple of 64: an item makes 4 rows of 16 columns.
kernel void product_float32(global float *c, global const float *a, global const float *b, int n)
{
    const int column = get_global_id(0) * 16, row = get_global_id(1) * 4;
    float4 sum[4][4] = {{0}};
    for (int k = 0; k < n; ++k)
        for (int j = 0; j < 4; ++j) {
            const float4 right = vload4(j, b + k * n + column);
            for (int i = 0; i < 4; ++i)
                sum[i][j] = fma((float4)(a[(row + i) * n + k]), right, sum[i][j]);
        }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) vstore4(sum[i][j], j, c + (row + i) * n + column);
}
