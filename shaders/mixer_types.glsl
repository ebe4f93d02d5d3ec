// Buffer types that the kernels of mixers and routers have besides those of common.glsl.
#ifndef MOEPACK_SHADERS_MIXER_TYPES_GLSL
#define MOEPACK_SHADERS_MIXER_TYPES_GLSL

layout(buffer_reference, scalar, buffer_reference_align = 8) buffer F32x4Addresses { F32x4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Addresses { uvec2 v[]; };

#endif
