// What a checkpoint must not say: configurations, tensors and scales that are wrong or contradict
// each other. Each is refused in one line that names the file and what is wrong, with the kind of
// error that makes commands end with code 2.
#include <functional>

#include "formats/base/bytes.h"
#include "tests/convert/encoding_vectors.h"
#include "tests/support/reader_drill.h"

namespace moepack::encoding_errors_test {
namespace {

using nlohmann::json;
using test::EncodingVector;
using test::WriterTensor;

const EncodingVector& vector_named(const std::string& name) {
  static const std::vector<EncodingVector> kAll = test::encoding_vectors();
  for (const EncodingVector& vector : kAll) {
    if (vector.name == name) return vector;
  }
  ADD_FAILURE() << "no vector is called " << name;
  return kAll.front();
}

void expect_refusal(const Status& status, StatusCode code, const std::vector<std::string>& parts,
                    const std::string& what) {
  ASSERT_FALSE(status.is_ok()) << what << " was accepted";
  EXPECT_EQ(status.code(), code) << what << ": " << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string_view::npos) << what;
  for (const std::string& part : parts) {
    EXPECT_NE(status.message().find(part), std::string_view::npos)
        << what << " lacks \"" << part << "\": " << status.message();
  }
}

// ---- configurations -----------------------------------------------------------------------------

struct ConfigCase {
  const char* what;
  const char* config;  // JSON; quotes are '
  StatusCode code;
  const char* part;
};

constexpr ConfigCase kConfigs[] = {
    {"unknown method", "{'quantization_config':{'quant_method':'hqq'}}", StatusCode::kUnsupported,
     "quantization_config.quant_method \"hqq\""},
    {"method of a wrong kind", "{'quantization_config':{'quant_method':4}}", StatusCode::kCorrupt,
     "quantization_config.quant_method"},
    {"block that is a list", "{'quantization_config':[]}", StatusCode::kCorrupt,
     "quantization_config"},
    {"fp8 of another kind", "{'quantization_config':{'quant_method':'fp8','fmt':'e5m2'}}",
     StatusCode::kUnsupported, "quantization_config.fmt"},
    {"fp8 block of one number",
     "{'quantization_config':{'quant_method':'fp8','weight_block_size':[128]}}",
     StatusCode::kCorrupt, "weight_block_size"},
    {"fp8 block of nothing",
     "{'quantization_config':{'quant_method':'fp8','weight_block_size':[128,0]}}",
     StatusCode::kCorrupt, "weight_block_size"},
    {"compressed-tensors without format",
     "{'quantization_config':{'quant_method':'compressed-tensors'}}", StatusCode::kUnsupported,
     "quantization_config.format"},
    {"sparse compressed-tensors",
     "{'quantization_config':{'quant_method':'compressed-tensors','format':'marlin-24'}}",
     StatusCode::kUnsupported, "marlin-24"},
    {"sparse beside packed",
     "{'quantization_config':{'quant_method':'compressed-tensors','format':'pack-quantized',"
     "'sparsity_config':{'format':'sparse-24-bitmask'}}}",
     StatusCode::kUnsupported, "sparsity_config.format"},
    {"compressed-tensors without groups",
     "{'quantization_config':{'quant_method':'compressed-tensors','format':'pack-quantized'}}",
     StatusCode::kCorrupt, "config_groups is missing"},
    {"group that is a number",
     "{'quantization_config':{'quant_method':'compressed-tensors','format':'pack-quantized',"
     "'config_groups':{'g':1}}}",
     StatusCode::kCorrupt, "config_groups.g"},
    {"group without weights",
     "{'quantization_config':{'quant_method':'compressed-tensors','format':'pack-quantized',"
     "'config_groups':{'g':{}}}}",
     StatusCode::kCorrupt, "config_groups.g.weights is missing"},
    {"group of an unknown format",
     "{'quantization_config':{'quant_method':'compressed-tensors','format':'mixed-precision',"
     "'config_groups':{'g':{'format':'dense','weights':{}}}}}",
     StatusCode::kUnsupported, "config_groups.g.format"},
    {"integers of one bit",
     "{'quantization_config':{'quant_method':'compressed-tensors','format':'pack-quantized',"
     "'config_groups':{'g':{'weights':{'num_bits':1,'type':'int'}}}}}",
     StatusCode::kUnsupported, "weights.num_bits"},
    {"integers of 16 bits",
     "{'quantization_config':{'quant_method':'compressed-tensors','format':'pack-quantized',"
     "'config_groups':{'g':{'weights':{'num_bits':16,'type':'int'}}}}}",
     StatusCode::kUnsupported, "weights.num_bits"},
    {"floats of six bits",
     "{'quantization_config':{'quant_method':'compressed-tensors','format':'float-quantized',"
     "'config_groups':{'g':{'weights':{'num_bits':6,'type':'float'}}}}}",
     StatusCode::kUnsupported, "weights.num_bits"},
    {"weights that are rounded at run time",
     "{'quantization_config':{'quant_method':'compressed-tensors','format':'int-quantized',"
     "'config_groups':{'g':{'weights':{'num_bits':8,'dynamic':true}}}}}",
     StatusCode::kUnsupported, "weights.dynamic"},
    {"group size of zero",
     "{'quantization_config':{'quant_method':'compressed-tensors','format':'pack-quantized',"
     "'config_groups':{'g':{'weights':{'num_bits':4,'group_size':0}}}}}",
     StatusCode::kCorrupt, "weights.group_size"},
    {"gptq of five bits", "{'quantization_config':{'quant_method':'gptq','bits':5}}",
     StatusCode::kUnsupported, "quantization_config.bits"},
    {"gptq of an unknown version",
     "{'quantization_config':{'quant_method':'gptq','bits':4,'checkpoint_format':'marlin'}}",
     StatusCode::kUnsupported, "checkpoint_format \"marlin\""},
    {"gptq in marlin's order",
     "{'quantization_config':{'quant_method':'gptq','bits':4,'is_marlin_format':true}}",
     StatusCode::kUnsupported, "is_marlin_format"},
    {"gptq with groups of -2", "{'quantization_config':{'quant_method':'gptq','group_size':-2}}",
     StatusCode::kCorrupt, "group_size"},
    {"gptq with a flag that is a word",
     "{'quantization_config':{'quant_method':'gptq','desc_act':'yes'}}", StatusCode::kCorrupt,
     "desc_act"},
    {"gptq with rules of a wrong kind",
     "{'quantization_config':{'quant_method':'gptq','dynamic':{'+:a':1}}}", StatusCode::kCorrupt,
     "dynamic.+:a"},
    {"awq gemv", "{'quantization_config':{'quant_method':'awq','version':'gemv'}}",
     StatusCode::kUnsupported, "version \"gemv\""},
    {"awq of eight bits", "{'quantization_config':{'quant_method':'awq','bits':8}}",
     StatusCode::kUnsupported, "quantization_config.bits"},
    {"awq without zeros", "{'quantization_config':{'quant_method':'awq','zero_point':false}}",
     StatusCode::kUnsupported, "zero_point"},
    {"modelopt without algorithm", "{'quantization_config':{'quant_method':'modelopt'}}",
     StatusCode::kCorrupt, "quant_algo is missing"},
    {"modelopt with scaled activations",
     "{'quantization_config':{'quant_method':'modelopt','quant_algo':'NVFP4_AWQ'}}",
     StatusCode::kUnsupported, "quant_algo \"NVFP4_AWQ\""},
    {"modelopt with groups of 32", "{'quantization_config':{'quant_algo':'NVFP4','group_size':32}}",
     StatusCode::kUnsupported, "group_size 32"},
    {"modelopt with an unknown layer",
     "{'quantization_config':{'quant_algo':'MIXED_PRECISION',"
     "'quantized_layers':{'a':{'quant_algo':'W4A16'}}}}",
     StatusCode::kUnsupported, "quantized_layers.a.quant_algo"},
    {"unknown mode of MLX", "{'quantization':{'mode':'mxfp6'}}", StatusCode::kUnsupported,
     "quantization.mode \"mxfp6\""},
    {"mxfp4 of eight bits", "{'quantization':{'mode':'mxfp4','bits':8}}", StatusCode::kUnsupported,
     "quantization.bits"},
    {"nvfp4 in groups of 32", "{'quantization':{'mode':'nvfp4','group_size':32}}",
     StatusCode::kUnsupported, "quantization.group_size"},
    {"mxfp8 with factors", "{'quantization':{'mode':'mxfp8','global_scale':true}}",
     StatusCode::kUnsupported, "quantization.global_scale"},
    {"affine of seven bits", "{'quantization':{'bits':7}}", StatusCode::kUnsupported,
     "quantization.bits"},
    {"override with an unknown key", "{'quantization':{'bits':4,'m':{'bits':4,'zeros':1}}}",
     StatusCode::kUnsupported, "quantization.m.zeros"},
    {"MLX beside a method",
     "{'quantization':{'bits':4},'quantization_config':{'quant_method':'fp8'}}",
     StatusCode::kCorrupt, "differs from the other"},
    {"two methods",
     "{'quantization_config':{'quant_method':'fp8'},"
     "'text_config':{'quantization_config':{'quant_method':'mxfp4'}}}",
     StatusCode::kCorrupt, "differs from the other"},
};

TEST(EncodingErrors, Configurations) {
  for (const ConfigCase& c : kConfigs) {
    std::string text = c.config;
    std::replace(text.begin(), text.end(), '\'', '"');
    expect_refusal(parse_quantization(text, "config.json").status(), c.code,
                   {"config.json", c.part}, c.what);
  }
}

// ---- tensors ------------------------------------------------------------------------------------

using Damage = std::function<void(EncodingVector&)>;

WriterTensor& tensor_of(EncodingVector& vector, std::string_view suffix) {
  for (WriterTensor& tensor : vector.tensors) {
    if (tensor.name.ends_with(suffix)) return tensor;
  }
  ADD_FAILURE() << "no tensor ends in " << suffix;
  return vector.tensors.front();
}

Damage drop(const char* suffix) {
  return [suffix](EncodingVector& v) {
    std::erase_if(v.tensors, [&](const WriterTensor& t) { return t.name.ends_with(suffix); });
  };
}
// All elements in one dimension.
Damage flatten(const char* suffix) {
  return [suffix](EncodingVector& v) {
    std::uint64_t all = 1;
    WriterTensor& tensor = tensor_of(v, suffix);
    for (std::uint64_t length : tensor.shape) all *= length;
    tensor.shape = {all};
  };
}
Damage transpose(const char* suffix) {
  return [suffix](EncodingVector& v) {
    WriterTensor& tensor = tensor_of(v, suffix);
    std::swap(tensor.shape[0], tensor.shape[1]);
  };
}
Damage retype(const char* suffix, DType type) {
  return [suffix, type](EncodingVector& v) { tensor_of(v, suffix).dtype = type; };
}
Damage method(const char* name) {
  return [name](EncodingVector& v) {
    v.config = {{"quantization_config", {{"quant_method", name}}}};
  };
}
Damage no_config() {
  return [](EncodingVector& v) { v.config = json::object(); };
}
Damage copy_as(const char* suffix, const char* name) {
  return [suffix, name](EncodingVector& v) {
    WriterTensor tensor = tensor_of(v, suffix);
    tensor.name = name;
    v.tensors.push_back(tensor);
  };
}
Damage reshape(std::vector<std::uint64_t> shape) {
  return [shape](EncodingVector& v) { v.shape = shape; };
}
// Other bytes at a place of the tensor.
Damage overwrite(const char* suffix, std::size_t at, std::string bytes) {
  return [suffix, at, bytes](EncodingVector& v) {
    tensor_of(v, suffix).bytes.replace(at, bytes.size(), bytes);
  };
}

struct TensorCase {
  const char* vector;
  const char* what;
  Damage damage;
  StatusCode code;
  const char* part;
};

// Tensors that are not there, or do not fit together: seen when they are recognised.
std::vector<TensorCase> form_cases() {
  constexpr StatusCode kCorrupt = StatusCode::kCorrupt;
  constexpr StatusCode kNotFound = StatusCode::kNotFound;
  constexpr StatusCode kUnsupported = StatusCode::kUnsupported;
  return {
      {"fp8 rows", "no scales", drop("weight_scale"), kNotFound, "weight_scale is missing"},
      {"fp8 blocks, cut off at the edges", "scales in one row", flatten("scale_inv"), kCorrupt,
       "fits no scales"},
      {"fp8 rows", "codes in one row", flatten("m.weight"), kCorrupt, "[24]"},
      {"fp8 rows", "scales of integers", retype("weight_scale", DType::kI16), kUnsupported, "I16"},
      {"fp8 rows", "a zero point", copy_as("weight_scale", "m.weight_zero_point"), kCorrupt,
       "weight_zero_point"},
      {"fp8 rows", "gptq's configuration", method("gptq"), kCorrupt, "gptq quantized"},
      {"fp8 blocks, cut off at the edges", "blocks of another size",
       [](EncodingVector& v) {
         v.config["quantization_config"]["weight_block_size"] = {4, 4};
       },
       kCorrupt, "blocks of 4 x 4"},
      {"fp8 blocks, cut off at the edges", "no size of blocks", method("fp8"), kCorrupt,
       "no weight_block_size"},
      {"fp8 blocks, cut off at the edges", "other inputs", reshape({5, 8}), kCorrupt, "[5, 8]"},
      {"int8 rows", "no scales", drop("weight_scale"), kNotFound, "weight_scale is missing"},
      {"int8 rows", "modelopt's configuration",
       [](EncodingVector& v) {
         v.config = {{"quantization_config", {{"quant_algo", "FP8"}}}};
       },
       kCorrupt, "modelopt quantized"},
      {"int8 with zeros", "zeros of another type", retype("zero_point", DType::kU8), kCorrupt,
       "ask for I8"},
      {"int8 with zeros", "zeros in one row", flatten("zero_point"), kCorrupt, "zero_point"},
      {"packed int4", "no scales", drop("weight_scale"), kNotFound, "weight_scale is missing"},
      {"packed int4", "words of another width", reshape({3, 72}), kCorrupt, "8 words a row"},
      {"packed int4", "a width that is not declared",
       [](EncodingVector& v) {
         v.config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = 8;
       },
       kCorrupt, "no codes that config.json declares"},
      {"packed int4", "scales in one row", flatten("weight_scale"), kCorrupt, "weight_scale"},
      {"packed int4", "scales of E4M3",
       [](EncodingVector& v) {
         WriterTensor& scales = tensor_of(v, "weight_scale");
         scales.dtype = DType::kF8E4M3;
         scales.bytes.resize(scales.bytes.size() / 2);
       },
       kUnsupported, "F8_E4M3"},
      {"packed int4", "no configuration", no_config(), kCorrupt, "names no quantization method"},
      {"packed int4", "a factor", copy_as("weight_scale", "m.weight_global_scale"), kCorrupt,
       "weight_global_scale"},
      {"packed int4 with zeros", "zeros in one row", flatten("zero_point"), kCorrupt,
       "ask for I32 [2, 2]"},
      {"packed int3, no gaps", "codes on the other side", transpose("weight_packed"), kCorrupt,
       "[6, 3]"},
      {"packed int4 in an order", "an order of bytes",
       [](EncodingVector& v) {
         WriterTensor& order = tensor_of(v, "g_idx");
         order.dtype = DType::kI8;
         order.bytes.resize(64);
       },
       kCorrupt, "ask for I32 [64]"},
      {"packed int4 in an order", "a group that is not there",
       overwrite("g_idx", 12, std::string("\x09\0\0\0", 4)), kCorrupt, "input 3"},
      {"packed int4 in an order", "a negative group", overwrite("g_idx", 0, "\xff\xff\xff\xff"),
       kCorrupt, "input 0"},
      {"packed mxfp4", "no scales", drop("weight_scale"), kNotFound, "weight_scale is missing"},
      {"packed mxfp4", "inputs that are no groups", reshape({3, 62}), kCorrupt, "[3, 31]"},
      {"packed mxfp4", "scales in one row", flatten("weight_scale"), kCorrupt, "ask for U8 [3, 2]"},
      {"packed mxfp4", "gptq's configuration", method("gptq"), kCorrupt, "gptq quantized"},
      {"packed nvfp4", "no factor", drop("weight_global_scale"), kNotFound,
       "weight_global_scale is missing"},
      {"packed nvfp4", "two factors", flatten("m.weight_scale"), kCorrupt, "F8_E4M3"},
      {"packed nvfp4", "a factor of another type",
       [](EncodingVector& v) {
         WriterTensor& factor = tensor_of(v, "global_scale");
         factor.dtype = DType::kBf16;
         factor.bytes.resize(2);
       },
       kCorrupt, "ask for F32 [1]"},
      {"modelopt nvfp4", "no scales", drop("m.weight_scale"), kNotFound, "weight_scale is missing"},
      {"modelopt nvfp4", "no factor", drop("weight_scale_2"), kNotFound,
       "weight_scale_2 is missing"},
      {"modelopt nvfp4", "fp8's configuration", method("fp8"), kCorrupt, "fp8 quantized"},
      {"gpt-oss mxfp4", "no scales", drop("m_scales"), kNotFound, "_scales is missing"},
      {"gpt-oss mxfp4", "blocks of 8",
       [](EncodingVector& v) {
         tensor_of(v, "m_blocks").shape = {2, 3, 4, 8};
       },
       kCorrupt, "[2, 3, 4, 8]"},
      {"gpt-oss mxfp4", "no configuration", no_config(), kCorrupt, "names no quantization method"},
      {"mlx mxfp4", "no scales", drop("m.scales"), kNotFound, "scales is missing"},
      {"mlx mxfp4", "scales of another group", reshape({3, 48}), kCorrupt, "no mxfp4"},
      {"mlx nvfp4", "biases", copy_as("m.scales", "m.biases"), kCorrupt, "biases"},
      {"mlx nvfp4 with factors", "one factor for three",
       [](EncodingVector& v) {
         WriterTensor& factor = tensor_of(v, "global_scale");
         factor.shape = {1};
         factor.bytes.resize(4);
       },
       kCorrupt, "ask for F32 [3]"},
      {"mlx mxfp8", "fp8's configuration", method("fp8"), kCorrupt, "fp8 quantized"},
      {"mlx affine 4", "no biases", drop("m.biases"), kNotFound, "biases is missing"},
      {"mlx affine 4", "gptq's configuration", method("gptq"), kCorrupt, "gptq quantized"},
      {"gptq 4, zeros", "no zeros", drop("qzeros"), kNotFound, "qzeros is missing"},
      {"gptq 4, zeros", "no scales", drop("m.scales"), kNotFound, "scales is missing"},
      {"gptq 4, zeros", "codes in one row", flatten("qweight"), kCorrupt, "qweight"},
      {"gptq 4, zeros", "other inputs", reshape({8, 80}), kCorrupt, "80 inputs"},
      {"gptq 4, zeros", "groups of 16",
       [](EncodingVector& v) { v.config["quantization_config"]["group_size"] = 16; }, kCorrupt,
       "ask for F16 [4, 8]"},
      {"gptq 4, zeros", "no configuration", no_config(), kCorrupt, "names no quantization method"},
      {"gptq 4, zeros", "awq's configuration", method("awq"), kCorrupt, "qweight"},
      {"gptq 4, order of activations", "no order", drop("g_idx"), kNotFound, "g_idx is missing"},
      {"gptq 4, order of activations", "a group that is not there",
       overwrite("g_idx", 4, std::string("\x04\0\0\0", 4)), kCorrupt, "input 1"},
      {"awq", "zeros on the other side", flatten("qzeros"), kCorrupt, "ask for I32 [2, 2]"},
      {"awq", "an order", copy_as("qzeros", "m.g_idx"), kCorrupt, "g_idx"},
      {"awq", "gptq's configuration", method("gptq"), kCorrupt, "qweight"},
  };
}

std::vector<TensorCase> value_cases() {
  constexpr StatusCode kCorrupt = StatusCode::kCorrupt;
  return {
      // Scales that are no numbers: found when the weights are read.
      {"fp8 rows", "NaN", overwrite("weight_scale", 2, "\xc0\x7f"), kCorrupt,
       "scale 1 is not a number"},
      {"fp8 rows, kept", "infinity", overwrite("weight_scale", 0, std::string("\x80\xff", 2)),
       kCorrupt, "scale 0 is infinite"},
      {"fp8 blocks, powers of two, kept", "E8M0's NaN", overwrite("scale_inv", 3, "\xff"), kCorrupt,
       "scale 3 is not a number"},
      {"int8 with zeros", "NaN", overwrite("weight_scale", 4, "\xff\x7f"), kCorrupt,
       "scale 2 is not a number"},
      {"packed int4 with zeros", "NaN", overwrite("weight_scale", 6, "\xff\x7f"), kCorrupt,
       "scale 3 is not a number"},
      {"packed mxfp4", "E8M0's NaN", overwrite("weight_scale", 5, "\xff"), kCorrupt,
       "scale 5 is not a number"},
      {"packed nvfp4", "E4M3's NaN", overwrite("m.weight_scale", 9, "\x7f"), kCorrupt,
       "scale 9 is not a number"},
      {"packed nvfp4", "division by zero", overwrite("global_scale", 0, std::string(4, '\0')),
       kCorrupt, "not positive"},
      {"packed nvfp4", "a negative factor",
       overwrite("global_scale", 0, std::string("\0\0\x80\xbf", 4)), kCorrupt, "not positive"},
      {"modelopt nvfp4", "a factor that is NaN", overwrite("scale_2", 2, "\xc0\x7f"), kCorrupt,
       "scale 0 is not a number"},
      {"gpt-oss mxfp4", "E8M0's NaN", overwrite("m_scales", 0, "\xff"), kCorrupt,
       "scale 0 is not a number"},
      {"mlx mxfp8", "E8M0's NaN", overwrite("m.scales", 1, "\xff"), kCorrupt,
       "scale 1 is not a number"},
      {"gptq 4, zeros", "NaN", overwrite("m.scales", 2, std::string("\x00\x7e", 2)), kCorrupt,
       "scale 1 is not a number"},
      {"awq", "infinity", overwrite("m.scales", 0, std::string("\x00\x7c", 2)), kCorrupt,
       "scale 0 is infinite"},
      // What the configuration promises and the tensors do not keep.
      {"gptq 4, symmetric", "a zero that is not in the middle", overwrite("qzeros", 0, "\x78"),
       kCorrupt, "sym true"},
      {"gptq 4, symmetric", "an input in another group",
       overwrite("g_idx", 0, std::string("\x01", 1)), kCorrupt, "desc_act false"},
      {"mlx nvfp4", "a negative scale", overwrite("m.scales", 2, "\xb8"), kCorrupt, "negative"},
  };
}

const std::vector<TensorCase>& tensor_cases() {
  static const std::vector<TensorCase> kCases = [] {
    std::vector<TensorCase> cases = form_cases();
    const std::vector<TensorCase> values = value_cases();
    cases.insert(cases.end(), values.begin(), values.end());
    return cases;
  }();
  return kCases;
}

// Recognises and reads everything, as a conversion that keeps codes does.
Status read_all(const EncodingVector& vector) {
  const test::LoneModule module(vector.tensors);
  MOE_ASSIGN_OR_RETURN(const ModuleForm form, test::recognise_vector(vector, module));
  for (std::uint64_t e = 0; e < form.matrices; ++e) {
    MOE_RETURN_IF_ERROR(test::weights_of_form(form, e).status());
  }
  return Status::ok();
}

TEST(EncodingErrors, Tensors) {
  EXPECT_GE(std::size(kConfigs) + tensor_cases().size(), 100U);
  for (const TensorCase& c : tensor_cases()) {
    EncodingVector vector = vector_named(c.vector);
    EXPECT_OK(read_all(vector));
    c.damage(vector);
    expect_refusal(read_all(vector), c.code, {"model.safetensors", "m", c.part},
                   std::string(c.vector) + ", " + c.what);
  }
}

// Remedies that name another format are true: decoded, these are read.
TEST(EncodingErrors, WhatCannotBeKeptCanBeDecoded) {
  for (const char* what :
       {"a zero that is not in the middle", "an input in another group", "a negative scale"}) {
    for (const TensorCase& c : tensor_cases()) {
      if (std::string_view(c.what) != what) continue;
      EncodingVector vector = vector_named(c.vector);
      c.damage(vector);
      const test::LoneModule module(vector.tensors);
      ASSERT_OK_AND_ASSIGN(const ModuleForm form, test::recognise_vector(vector, module));
      EXPECT_OK(test::weights_of_form(test::decoded_form(form), 0).status());
    }
  }
}

// Every configuration of the vectors, cut anywhere.
TEST(EncodingErrors, ConfigurationsCutShort) {
  for (const char* name : {"packed int4", "fp8 blocks, cut off at the edges", "gptq 4, symmetric",
                           "awq", "modelopt nvfp4", "mlx nvfp4 with factors"}) {
    test::drill_truncation(vector_named(name).config.dump(), [](std::string_view text) {
      return parse_quantization(text, "config.json").status();
    });
  }
  const std::string own = R"({"quantization":{"quant_algo":"NVFP4","group_size":16}})";
  test::drill_truncation(own, [](std::string_view text) {
    ParsedConfig config;
    return add_quantization_file(text, "hf_quant_config.json", config);
  });
}

}  // namespace
}  // namespace moepack::encoding_errors_test
