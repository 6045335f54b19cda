#pragma once

#include <string>
#include <vector>

#include "embercache/status.h"

namespace embercache {

struct MediaFile {
  std::string path;
  // What its output is named after: the file's name, with its way from the folder that was named.
  std::string name;
};

// The files that `words` mean, in the order of the words and by name: a file; a folder, with all
// files in it and below that are named like images; else a pattern (*, ?, [), of which all matches
// are taken in the same way. NotFound names the word that means nothing.
Result<std::vector<MediaFile>> FindMediaFiles(const std::vector<std::string>& words);

// Where the embedding of each file goes: `output` itself for one file when it ends in .safetensors
// or .npy, else `output` is a folder, and each is its name with `extension` appended. Invalid when
// two would be one, one file is to hold several, or `output` is named like another kind of file:
// one with an extension, that is no folder yet and does not end in '/'.
Result<std::vector<std::string>> OutputPaths(const std::vector<MediaFile>& files,
                                             const std::string& output,
                                             const std::string& extension);

}  // namespace embercache
