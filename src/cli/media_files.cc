#include "src/cli/media_files.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <memory>

#include "src/cli/tensor_file.h"

namespace embercache {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kImageExtensions = {".jpg", ".jpeg", ".png", ".webp",
                                                              ".gif"};

bool IsNamedLikeAnImage(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::find(kImageExtensions.begin(), kImageExtensions.end(), extension) !=
         kImageExtensions.end();
}

Status AddFolder(const std::string& folder, std::vector<MediaFile>* files) {
  std::vector<MediaFile> found;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code gone;
    if (!it->is_regular_file(gone) || !IsNamedLikeAnImage(it->path())) continue;
    found.push_back({it->path().string(), it->path().lexically_relative(folder).string()});
  }
  if (error) return Status::Unavailable(fmt::format("folder {}: {}", folder, error.message()));
  if (found.empty()) {
    return Status::NotFound(fmt::format("folder '{}' has no files named {}", folder,
                                        fmt::join(kImageExtensions, ", ")));
  }
  std::sort(found.begin(), found.end(),
            [](const MediaFile& a, const MediaFile& b) { return a.path < b.path; });
  files->insert(files->end(), found.begin(), found.end());
  return Status::Ok();
}

Status AddPath(const std::string& path, std::vector<MediaFile>* files) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return AddFolder(path, files);
  if (!fs::exists(status)) return Status::NotFound(fmt::format("there is no file '{}'", path));
  files->push_back({path, fs::path(path).filename().string()});
  return Status::Ok();
}

std::vector<std::string> Matches(const std::string& pattern) {
  glob_t matches = {};
  const std::unique_ptr<glob_t, void (*)(glob_t*)> owner(&matches, &globfree);
  if (glob(pattern.c_str(), 0, nullptr, &matches) != 0) return {};
  return {matches.gl_pathv, matches.gl_pathv + matches.gl_pathc};
}

}  // namespace

Result<std::vector<MediaFile>> FindMediaFiles(const std::vector<std::string>& words) {
  std::vector<MediaFile> files;
  for (const std::string& word : words) {
    std::error_code error;
    const bool is_pattern =
        word.find_first_of("*?[") != std::string::npos && !fs::exists(word, error);
    if (!is_pattern) {
      EMBERCACHE_RETURN_IF_ERROR(AddPath(word, &files));
      continue;
    }
    const std::vector<std::string> matches = Matches(word);
    if (matches.empty()) return Status::NotFound(fmt::format("nothing matches '{}'", word));
    for (const std::string& match : matches) EMBERCACHE_RETURN_IF_ERROR(AddPath(match, &files));
  }
  return files;
}

Result<std::vector<std::string>> OutputPaths(const std::vector<MediaFile>& files,
                                             const std::string& output,
                                             const std::string& extension) {
  std::error_code error;
  const bool is_file = TensorFormatOf(output).ok() && !fs::is_directory(output, error);
  if (is_file && files.size() != 1) {
    return Status::Invalid(
        fmt::format("--output '{}' is one file, and there are {} embeddings; name a folder", output,
                    files.size()));
  }
  if (is_file) return std::vector<std::string>{output};
  if (fs::path(output).has_extension() && !fs::is_directory(output, error)) {
    return Status::Invalid(fmt::format(
        "--output '{}' is named like a file that is neither .safetensors nor .npy; a new folder of "
        "that name is '{}/'",
        output, output));
  }
  std::vector<std::string> paths;
  std::map<std::string, std::string> taken;
  for (const MediaFile& file : files) {
    paths.push_back((fs::path(output) / (file.name + extension)).string());
    const auto [first, is_new] = taken.emplace(paths.back(), file.path);
    if (!is_new) {
      return Status::Invalid(fmt::format("'{}' and '{}' would both be written to '{}'",
                                         first->second, file.path, paths.back()));
    }
  }
  return paths;
}

}  // namespace embercache
