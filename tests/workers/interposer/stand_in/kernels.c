/* Kernels for the stand-in driver: of the application, and tuned ones. */
#include <math.h>

typedef struct {
    float *out;
    long long unused;
} box; /* a pointer in a struct argument */

static float silu(float x) { return x / (1.0f + expf(-x)); }

/* silu(const float *in, float *out, int n): one element a thread. */
const int _Z4siluPKfPfi_params[] = {8, 8, 4, 0};
void _Z4siluPKfPfi(const unsigned *grid, const unsigned *block, void **p)
{
    const float *in = *(float **)p[0];
    float *out = *(float **)p[1];
    int n = *(int *)p[2];
    for (long i = 0; i < (long)grid[0] * block[0] && i < n; i++)
        out[i] = silu(in[i]);
}

/* scale(box b, float s, int n): in place, through a struct. */
const int _Z5scale3boxfi_params[] = {16, 4, 4, 0};
void _Z5scale3boxfi(const unsigned *grid, const unsigned *block, void **p)
{
    float *out = ((box *)p[0])->out;
    float factor = *(float *)p[1];
    int n = *(int *)p[2];
    for (long i = 0; i < (long)grid[0] * block[0] && i < n; i++)
        out[i] *= factor;
}

/* Tuned kernels with the arguments of silu: four elements a thread. */
const int silu_tuned_params[] = {8, 8, 4, 0};
void silu_tuned(const unsigned *grid, const unsigned *block, void **p)
{
    unsigned four[] = {4 * grid[0], 1, 1};
    _Z4siluPKfPfi(four, block, p);
}

/* A first element that is wrong. */
const int silu_wrong_params[] = {8, 8, 4, 0};
void silu_wrong(const unsigned *grid, const unsigned *block, void **p)
{
    silu_tuned(grid, block, p);
    (*(float **)p[1])[0] += 1;
}

/* Differs by rounding. */
const int silu_close_params[] = {8, 8, 4, 0};
void silu_close(const unsigned *grid, const unsigned *block, void **p)
{
    silu_tuned(grid, block, p);
    float *out = *(float **)p[1];
    int n = *(int *)p[2];
    for (int i = 0; i < n; i++)
        out[i] *= 1.000001f;
}

/* Writes one element too many. */
const int silu_stray_params[] = {8, 8, 4, 0};
void silu_stray(const unsigned *grid, const unsigned *block, void **p)
{
    silu_tuned(grid, block, p);
    (*(float **)p[1])[*(int *)p[2]] = 0x1p+100f * 1.2345678f;
}

/* Takes a long where silu takes an int. */
const int silu_layout_params[] = {8, 8, 8, 0};
void silu_layout(const unsigned *grid, const unsigned *block, void **p)
{
    silu_wrong(grid, block, p);
}

/* gather(float *const *rows, float *out): pointers inside device memory. */
const int gather_params[] = {8, 8, 0};
void gather(const unsigned *grid, const unsigned *block, void **p)
{
    float *const *rows = *(float ***)p[0];
    (void)grid, (void)block;
    (*(float **)p[1])[0] = rows[0][0] + rows[1][0];
}

/* sample(texture t, float *out). */
const int sample_params[] = {8, 8, 0};
void sample(const unsigned *grid, const unsigned *block, void **p)
{
    (void)grid, (void)block;
    (*(float **)p[1])[0] = 1.0f;
}
