// Extensions and buffer types of every kernel. Device memory is reached by address alone; an address
// type says the alignment that its loads may count on.
#ifndef MOEPACK_SHADERS_COMMON_GLSL
#define MOEPACK_SHADERS_COMMON_GLSL

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_vote : require

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer F32 { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer F32x4 { vec4 v[]; };
// What an earlier stage of a token writes (stage_order.glsl).
#ifdef ORDERED
#define MOE_HANDED coherent volatile
#define MOE_SHARED coherent volatile
#define MOE_CHOSEN coherent
#else
#define MOE_HANDED
#define MOE_SHARED coherent
#define MOE_CHOSEN
#endif
// What other work groups of a dispatch write, or an earlier stage.
layout(buffer_reference, scalar, buffer_reference_align = 4) MOE_SHARED buffer SharedF32 { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) coherent buffer SharedF32x2 { vec2 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer SharedF32x4 { vec4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) MOE_HANDED buffer HandedF32 { float v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) MOE_HANDED buffer HandedF32x4 { vec4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Words { uint v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Words2 { uvec2 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Words4 { uvec4 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Halves { uint16_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer Bytes { uint8_t v[]; };

#include "shaders/shared_types.h"
#include "shaders/handed.glsl"

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer BatchRows { BatchRow v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer BatchSlices { BatchSlice v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) MOE_CHOSEN buffer Choices { Choice v[]; };
// Addresses of other buffers.
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer F32Addresses { F32 v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer WordsAddresses { Words v[]; };

#endif
