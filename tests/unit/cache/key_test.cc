#include "embercache/key.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

namespace embercache {
namespace {

NamespaceFields Fields() {
  NamespaceFields fields;
  fields.model_id = "model";
  fields.weights_digest = Sha256Of("weights");
  fields.preprocess_fingerprint = "resize=448";
  return fields;
}

// Each line of the file: kind, the fields as the test below reads them, the key.
TEST(KeyTest, TwentyGoldenInputsGiveTheKeysInTheRepository) {
  std::ifstream file(EMBERCACHE_GOLDEN_DIR "/keys.txt");
  ASSERT_TRUE(file) << "tests/golden/keys.txt is missing";
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream in(line);
    std::string kind, ns, a, b, expected;
    in >> kind >> ns >> a >> b >> expected;
    NamespaceFields fields = Fields();
    fields.tenant_salt = ns;
    const Digest256 digest = NamespaceDigest(fields);
    const EmbeddingKey key = kind == "caller"
                                 ? EmbeddingKey::FromCallerHash(digest, a)
                                 : EmbeddingKey::FromMedia(digest,
                                                           kind == "image"   ? Modality::kImage
                                                           : kind == "video" ? Modality::kVideo
                                                                             : Modality::kAudio,
                                                           Sha256Of(a), Sha256Of(b));
    EXPECT_EQ(key.Text(), expected) << line;
    ++lines;
  }
  EXPECT_EQ(lines, 20);
}

TEST(KeyTest, EveryFieldOfTheNamespaceCounts) {
  std::set<Digest256> digests;
  const auto add = [&](auto change) {
    NamespaceFields fields = Fields();
    change(fields);
    EXPECT_TRUE(digests.insert(NamespaceDigest(fields)).second);
  };
  add([](NamespaceFields&) {});
  add([](NamespaceFields& f) { f.model_id = "modem"; });
  add([](NamespaceFields& f) { f.weights_digest = Sha256Of("other"); });
  add([](NamespaceFields& f) { f.preprocess_fingerprint = "resize=896"; });
  add([](NamespaceFields& f) { f.dtype = DType::kBF16; });
  add([](NamespaceFields& f) { f.tensor_parallel_size = 2; });
  add([](NamespaceFields& f) { f.tenant_salt = "t2"; });
  add([](NamespaceFields& f) { f.epoch = 1; });
  // What ends one field cannot begin the next.
  add([](NamespaceFields& f) {
    f.model_id = "mode";
    f.preprocess_fingerprint = "lresize=448";
  });
}

TEST(KeyTest, MediaAndCallersHashesNeverMeet) {
  const Digest256 ns = NamespaceDigest(Fields());
  const Digest256 media = Sha256Of("bytes"), options = Sha256Of("");
  const EmbeddingKey image = EmbeddingKey::FromMedia(ns, Modality::kImage, media, options);
  EXPECT_NE(image, EmbeddingKey::FromMedia(ns, Modality::kAudio, media, options));
  EXPECT_NE(image, EmbeddingKey::FromMedia(ns, Modality::kImage, options, media));
  EXPECT_NE(image, EmbeddingKey::FromCallerHash(ns, media.ToHex()));
  EXPECT_EQ(image, EmbeddingKey::FromMedia(ns, Modality::kImage, media, options));
}

}  // namespace
}  // namespace embercache
