/* What stands between an expert's gate and up projections (formats/config/layer_spec.h): the numbers of
   the specialization constant ACTIVATION. */
#ifndef MOEPACK_SHADERS_EXPERT_ACTIVATION_H
#define MOEPACK_SHADERS_EXPERT_ACTIVATION_H

#define MOE_ACTIVATION_SWIGLU 0
#define MOE_ACTIVATION_CLAMPED_SWIGLU 1
#define MOE_ACTIVATION_GEGLU 2

#ifndef __cplusplus
/* Whoever includes this has ACTIVATION and ACTIVATION_LIMIT. */
float activate(float gate, float up) {
  if (ACTIVATION == MOE_ACTIVATION_SWIGLU) return gate / (1.0 + exp(-gate)) * up;
  if (ACTIVATION == MOE_ACTIVATION_GEGLU) {
    // 0.5 (1 + tanh(z)) is the sigmoid of 2 z.
    const float slope = gate * (1.5957691216057308 + 0.0713548162726 * gate * gate);
    return gate / (1.0 + exp(-slope)) * up;
  }
  const float g = min(gate, ACTIVATION_LIMIT);
  return g / (1.0 + exp(-1.702 * g)) * (clamp(up, -ACTIVATION_LIMIT, ACTIVATION_LIMIT) + 1.0);
}
#endif

#endif
