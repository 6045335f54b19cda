#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace embercache {

// How keys become file names (docs/design/stores.md):
//   emb_<64 lower-case hex>   aa/bb/<64 hex>.emb
//   any other text            aa/bb/x<64 hex of its SHA-256>.emb
// where aa and bb are the first and the next two of the 64 digits. Two keys never share a file: the
// first form is one-to-one, the second as good as SHA-256, and `x` tells them apart.
//
// An object's id is `emb_<hex>`, its key, or `x<hex>`: the key of the second kind is not
// recoverable, so that text names the object itself in stats, gets and removals. It can't be put.

// The path of the object under the store's folder.
std::string ObjectPath(std::string_view key_or_id);

// Whether the text has the form of an id that is no key.
bool IsBareId(std::string_view text);

// The id of a file in aa/bb, nullopt when it is no object's name.
std::optional<std::string> ObjectId(std::string_view file_name);

// Whether a folder's name is two lower-case hexadecimal digits.
bool IsFanOutName(std::string_view name);

}  // namespace embercache
