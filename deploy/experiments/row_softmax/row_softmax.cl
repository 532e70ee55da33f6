// out[r] = softmax(scores[r]), one work-item per row.
kernel void row_softmax(global const float *scores, global float *out, int rows, int columns) {
  size_t row = get_global_id(0);
  if (row >= rows) return;
  global const float *x = scores + row * columns;
  global float *y = out + row * columns;
  float top = x[0];
  for (int i = 1; i < columns; ++i) top = fmax(top, x[i]);
  float sum = 0.0f;
  for (int i = 0; i < columns; ++i) {
    y[i] = exp(x[i] - top);
    sum += y[i];
  }
  for (int i = 0; i < columns; ++i) y[i] /= sum;
}
