// Which expert a slot of a row uses, and where its record lies.
#ifndef MOEPACK_SHADERS_EXPERT_SLOTS_GLSL
#define MOEPACK_SHADERS_EXPERT_SLOTS_GLSL

// Address of the record of expert `expert` among `experts`; 0 where there is none.
uint64_t find_record(Words2 records, uint experts, uint expert) {
  return expert < experts ? packUint2x32(records.v[expert]) : 0;
}

// The same where a layer's records are of several kinds, of which this dispatch computes one.
uint64_t find_record_of(Words2 records, uint experts, uint expert, Words kinds, uint kind) {
  if (expert >= experts || kinds.v[expert] != kind) return 0;
  return packUint2x32(records.v[expert]);
}

#endif
