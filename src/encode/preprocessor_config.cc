// What the slow image processors of Hugging Face transformers read from preprocessor_config.json,
// with their defaults. Anything else in the file is an error, unless it is known to change nothing.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/encode/preprocess.h"

namespace embercache {
namespace {

using Json = nlohmann::json;
using Mean = std::array<double, 3>;

constexpr Mean kHalves = {0.5, 0.5, 0.5};
constexpr Mean kClipMean = {0.48145466, 0.4578275, 0.40821073};
constexpr Mean kClipStd = {0.26862954, 0.26130258, 0.27577711};

// Entries that do not change what a slow processor makes of one picture.
constexpr std::string_view kIgnored[] = {
    "_processor_class",     "_valid_processor_keys",  "auto_map",
    "data_format",          "default_to_square",      "device",
    "disable_grouping",     "feature_extractor_type", "image_seq_length",
    "image_processor_type", "input_data_format",      "processor_class",
    "return_tensors",       "do_convert_rgb",
};

// One image processor class and what it does unless told otherwise.
struct Class {
  std::string_view name;  // without the "ImageProcessor" at its end
  bool square_size;       // a bare number as `size` means both sides; else the shortest edge
  uint32_t size;          // 0: has to be in the file
  std::optional<Filter> filter;
  bool crops;
  std::optional<Mean> mean;
  std::optional<Mean> std;
};

constexpr Class kClasses[] = {
    {"ViT", true, 224, Filter::kBilinear, false, kHalves, kHalves},
    {"CLIP", false, 224, Filter::kBicubic, true, kClipMean, kClipStd},
    {"Siglip", true, 224, Filter::kBicubic, false, kHalves, kHalves},
    {"Bit", false, 224, Filter::kBicubic, true, kClipMean, kClipStd},
};
// For a file that names no class: it has to say everything.
constexpr Class kUnnamed = {"", true, 0, std::nullopt, false, std::nullopt, std::nullopt};

std::string Shown(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status Unsupported(std::string_view entry, const Json& value, std::string_view right) {
  return Status::Invalid(fmt::format("entry {} is {}; {}", entry, Shown(value), right));
}

Result<Class> FindClass(const Json& config) {
  for (const char* entry : {"image_processor_type", "feature_extractor_type"}) {
    if (!config.contains(entry)) continue;
    const Json& value = config[entry];
    for (const Class& candidate : kClasses) {
      for (const char* ending : {"ImageProcessor", "ImageProcessorFast", "FeatureExtractor"}) {
        if (value == fmt::format("{}{}", candidate.name, ending)) return candidate;
      }
    }
    return Unsupported(entry, value,
                       "supported are ViTImageProcessor, CLIPImageProcessor, SiglipImageProcessor, "
                       "BitImageProcessor (DINOv2)");
  }
  return kUnnamed;
}

// The entry where it is there and not null.
const Json* Find(const Json& config, std::string_view entry) {
  const auto found = config.find(entry);
  return found == config.end() || found->is_null() ? nullptr : &*found;
}

// null counts as false, as in Python.
Result<bool> Flag(const Json& config, std::string_view entry, bool absent) {
  const auto found = config.find(entry);
  if (found == config.end()) return absent;
  if (found->is_null()) return false;
  if (!found->is_boolean()) return Unsupported(entry, *found, "it has to be true or false");
  return found->get<bool>();
}

std::optional<uint32_t> Side(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto side = value.get<uint64_t>();
  if (side < 1 || side > kMaxPreparedSide) return std::nullopt;
  return static_cast<uint32_t>(side);
}

// Fills one of the two: a size of both sides, or the shortest edge.
Status ReadSize(std::string_view entry, const Json& value, bool square,
                std::optional<ImageSize>& size, std::optional<uint32_t>* shortest_edge) {
  if (value.is_object() && value.size() == 2 && value.contains("height") &&
      value.contains("width")) {
    const auto height = Side(value["height"]);
    const auto width = Side(value["width"]);
    if (height && width) {
      size = ImageSize{*width, *height};
      return Status::Ok();
    }
  }
  if (shortest_edge != nullptr && value.is_object() && value.size() == 1 &&
      value.contains("shortest_edge")) {
    *shortest_edge = Side(value["shortest_edge"]);
    if (*shortest_edge) return Status::Ok();
  }
  if (const auto side = Side(value)) {
    if (square || shortest_edge == nullptr) {
      size = ImageSize{*side, *side};
    } else {
      *shortest_edge = side;
    }
    return Status::Ok();
  }
  return Unsupported(
      entry, value,
      fmt::format("supported are {{\"height\", \"width\"}}{} and a number, each side 1 to {}",
                  shortest_edge != nullptr ? ", {\"shortest_edge\"}" : "", kMaxPreparedSide));
}

Result<Filter> ReadFilter(const Json& value) {
  if (value.is_number_unsigned()) {
    switch (value.get<uint64_t>()) {
      case 0:
        return Filter::kNearest;
      case 1:
        return Filter::kLanczos;
      case 2:
        return Filter::kBilinear;
      case 3:
        return Filter::kBicubic;
      case 5:
        return Filter::kHamming;
      default:
        break;
    }
  }
  return Unsupported(
      "resample", value,
      "supported are 0 (nearest), 1 (Lanczos), 2 (bilinear), 3 (bicubic), 5 (Hamming)");
}

Status Missing(std::string_view entry) {
  return Status::Invalid(
      fmt::format("entry {} is missing, and no image_processor_type says what it would be", entry));
}

Status ReadResize(const Json& config, const Class& of, PreprocessSettings& settings) {
  EMBERCACHE_ASSIGN_OR_RETURN(const bool wanted, Flag(config, "do_resize", true));
  if (!wanted) return Status::Ok();
  PreprocessSettings::Resize resize;
  if (const Json* size = Find(config, "size")) {
    EMBERCACHE_RETURN_IF_ERROR(
        ReadSize("size", *size, of.square_size, resize.size, &resize.shortest_edge));
  } else if (of.size == 0) {
    return Missing("size");
  } else if (of.square_size) {
    resize.size = ImageSize{of.size, of.size};
  } else {
    resize.shortest_edge = of.size;
  }
  if (const Json* filter = Find(config, "resample")) {
    EMBERCACHE_ASSIGN_OR_RETURN(resize.filter, ReadFilter(*filter));
  } else if (!of.filter) {
    return Missing("resample");
  } else {
    // transformers takes an explicit null for bilinear.
    resize.filter = config.contains("resample") ? Filter::kBilinear : *of.filter;
  }
  settings.resize = resize;
  return Status::Ok();
}

Status ReadCrop(const Json& config, const Class& of, PreprocessSettings& settings) {
  EMBERCACHE_ASSIGN_OR_RETURN(const bool wanted, Flag(config, "do_center_crop", of.crops));
  if (!wanted) return Status::Ok();
  // The slow processors of these classes pass over the entry, the fast ones follow it.
  if (!of.name.empty() && !of.crops) {
    return Unsupported("do_center_crop", config["do_center_crop"],
                       fmt::format("{}ImageProcessor does not crop", of.name));
  }
  if (const Json* size = Find(config, "crop_size")) {
    return ReadSize("crop_size", *size, true, settings.centre_crop, nullptr);
  }
  if (of.size == 0) return Missing("crop_size");
  settings.centre_crop = ImageSize{of.size, of.size};
  return Status::Ok();
}

Status ReadRescale(const Json& config, PreprocessSettings& settings) {
  EMBERCACHE_ASSIGN_OR_RETURN(const bool wanted, Flag(config, "do_rescale", true));
  if (!wanted) return Status::Ok();
  settings.rescale_factor = 1.0 / 255;
  const auto factor = config.find("rescale_factor");
  if (factor == config.end()) return Status::Ok();
  if (!factor->is_number()) return Unsupported("rescale_factor", *factor, "it has to be a number");
  settings.rescale_factor = factor->get<double>();
  return Status::Ok();
}

Result<Mean> ReadMean(const Json& config, std::string_view entry,
                      const std::optional<Mean>& absent) {
  const Json* value = Find(config, entry);
  if (value == nullptr) {
    if (!absent) return Missing(entry);
    return *absent;
  }
  if (value->is_number()) {
    const auto number = value->get<double>();
    return Mean{number, number, number};
  }
  const bool numbers = value->is_array() && value->size() == 3 &&
                       std::all_of(value->begin(), value->end(),
                                   [](const Json& number) { return number.is_number(); });
  if (!numbers) return Unsupported(entry, *value, "it has to be three numbers, or one");
  return value->get<Mean>();
}

Status ReadNormalise(const Json& config, const Class& of, PreprocessSettings& settings) {
  EMBERCACHE_ASSIGN_OR_RETURN(const bool wanted, Flag(config, "do_normalize", true));
  if (!wanted) return Status::Ok();
  PreprocessSettings::Normalisation normalise;
  EMBERCACHE_ASSIGN_OR_RETURN(normalise.mean, ReadMean(config, "image_mean", of.mean));
  EMBERCACHE_ASSIGN_OR_RETURN(normalise.std, ReadMean(config, "image_std", of.std));
  for (const double std : normalise.std) {
    if (std == 0) return Unsupported("image_std", config["image_std"], "it must not be zero");
  }
  settings.normalise = normalise;
  return Status::Ok();
}

bool IsRead(std::string_view entry) {
  constexpr std::string_view kRead[] = {
      "crop_size",      "do_center_crop", "do_flip_channel_order",
      "do_normalize",   "do_rescale",     "do_resize",
      "image_mean",     "image_std",      "resample",
      "rescale_factor", "size",
  };
  return std::find(std::begin(kRead), std::end(kRead), entry) != std::end(kRead) ||
         std::find(std::begin(kIgnored), std::end(kIgnored), entry) != std::end(kIgnored);
}

// An entry that is off, whatever it would do, changes nothing.
Status CheckRest(const Json& config) {
  for (const auto& [entry, value] : config.items()) {
    if (IsRead(entry) || value.is_null() || value == false) continue;
    return Unsupported(entry, value, "it is not supported");
  }
  const Json* format = Find(config, "data_format");
  if (format != nullptr && *format != "channels_first") {
    return Unsupported("data_format", *format, "\"channels_first\" is supported");
  }
  return Status::Ok();
}

}  // namespace

Result<PreprocessSettings> ParsePreprocessorConfig(std::string_view json) {
  const Json config = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return Status::Invalid("it is not a JSON object");
  EMBERCACHE_ASSIGN_OR_RETURN(const Class of, FindClass(config));
  EMBERCACHE_RETURN_IF_ERROR(CheckRest(config));
  PreprocessSettings settings;
  EMBERCACHE_RETURN_IF_ERROR(ReadResize(config, of, settings));
  EMBERCACHE_RETURN_IF_ERROR(ReadCrop(config, of, settings));
  EMBERCACHE_RETURN_IF_ERROR(ReadRescale(config, settings));
  EMBERCACHE_RETURN_IF_ERROR(ReadNormalise(config, of, settings));
  EMBERCACHE_ASSIGN_OR_RETURN(settings.flip_channel_order,
                              Flag(config, "do_flip_channel_order", false));
  return settings;
}

}  // namespace embercache
