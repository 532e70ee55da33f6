#include "portable.h"

// The cumulative normal distribution by a polynomial of Abramowitz and Stegun.
FUNCTION float normal(float d) {
  const float k = 1.0f / (1.0f + 0.2316419f * FABS(d));
  const float poly =
      k * (0.319381530f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
  const float tail = 0.39894228040143267794f * EXP(-0.5f * d * d) * poly;
  return d > 0.0f ? 1.0f - tail : tail;
}

// European options: prices of calls and puts.
KERNEL void black_scholes(GLOBAL float* RESTRICT call, GLOBAL float* RESTRICT put, GLOBAL const float* RESTRICT price,
                          GLOBAL const float* RESTRICT strike, GLOBAL const float* RESTRICT years, float rate,
                          float volatility, int n) {
  for (int i = GLOBAL_ID; i < n; i += GLOBAL_SIZE) {
    const float root = SQRT(years[i]);
    const float d1 =
        (LOG(price[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / (volatility * root);
    const float d2 = d1 - volatility * root;
    const float discounted = strike[i] * EXP(-rate * years[i]);
    call[i] = price[i] * normal(d1) - discounted * normal(d2);
    put[i] = discounted * (1.0f - normal(d2)) - price[i] * (1.0f - normal(d1));
  }
}
