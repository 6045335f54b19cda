#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "src/store/redis/redis_store.h"
#include "tests/conformance/payload.h"
#include "tests/conformance/temp_folder.h"
#include "tests/unit/store_redis/test_server.h"

namespace embercache::redis {
namespace {

using ::testing::HasSubstr;

class RedisTlsTest : public testing::Test {
 protected:
  RedisTlsTest() { MakeCertificates(folder_.path()); }

  std::unique_ptr<TestServer> Start(const std::string& clients_need_certificates) {
    return std::make_unique<TestServer>(
        TestServer::Options{.arguments = {"--tls-auth-clients", clients_need_certificates},
                            .certificates = folder_.path()});
  }
  std::unique_ptr<EmbeddingStore> Open(const TestServer& server, const std::string& host,
                                       const std::string& authority,
                                       const std::string& more_options = "") const {
    return OpenStore(R"({"url":"rediss://)" + host + ":" + std::to_string(server.port()) +
                     R"(","ca_file":")" + folder_.path() + "/" + authority + R"(")" + more_options +
                     "}");
  }
  static void ExpectRefusal(EmbeddingStore& store, const std::string& why) {
    const PutResult put = PutOne(store, "emb_x", PayloadOf("x", 10));
    EXPECT_EQ(put.status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(put.status.message(), HasSubstr(why));
    EXPECT_EQ(store.Health().state, StoreState::kDown);
  }

  TempFolder folder_;
};

TEST_F(RedisTlsTest, ObjectsOfAllSizesTravelEncrypted) {
  const auto server = Start("no");
  for (const std::string host : {"127.0.0.1", "localhost"}) {
    const auto store = Open(*server, host, "ca.pem");
    for (const size_t size : {0U, 1U, 16'000U, 17'000U, 1U << 20, 20U << 20}) {
      const std::string key = "emb_" + host + std::to_string(size);
      const Bytes bytes = PayloadOf(key, size);
      const PutResult put = PutOne(*store, key, bytes);
      ASSERT_EQ(put.outcome, PutOutcome::kStored) << put.status.ToString();
      Bytes got;
      const GetResult get = GetOne(*store, key, size, &got);
      ASSERT_EQ(get.outcome, GetOutcome::kHit) << get.status.ToString();
      EXPECT_TRUE(got == bytes);
    }
  }
}

TEST_F(RedisTlsTest, AServerOfAnotherAuthorityIsNotTrusted) {
  const auto server = Start("no");
  ExpectRefusal(*Open(*server, "127.0.0.1", "other.pem"), "certificate");
}

TEST_F(RedisTlsTest, AServerOfAnotherNameIsNotTrusted) {
  std::filesystem::copy_file(folder_.path() + "/stranger.pem", folder_.path() + "/server.pem",
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(folder_.path() + "/stranger.key", folder_.path() + "/server.key",
                             std::filesystem::copy_options::overwrite_existing);
  const auto server = Start("no");
  ExpectRefusal(*Open(*server, "127.0.0.1", "ca.pem"), "IP address mismatch");
  ExpectRefusal(*Open(*server, "localhost", "ca.pem"), "hostname mismatch");
}

TEST_F(RedisTlsTest, AClientCertificateIsShownWhereTheServerWantsOne) {
  const auto server = Start("yes");
  const std::string certificate = R"(,"cert_file":")" + folder_.path() +
                                  R"(/client.pem","key_file":")" + folder_.path() +
                                  R"(/client.key")";
  const auto store = Open(*server, "127.0.0.1", "ca.pem", certificate);
  EXPECT_EQ(PutOne(*store, "emb_x", PayloadOf("x", 10)).outcome, PutOutcome::kStored);
  // The server says why, or just hangs up.
  ExpectRefusal(*Open(*server, "127.0.0.1", "ca.pem"), "127.0.0.1:");
}

TEST_F(RedisTlsTest, FilesThatAreNoCertificatesAreNamedAtTheStart) {
  std::ofstream(folder_.path() + "/bad.pem") << "not a certificate";
  StoreConfig config;
  config.json = R"({"url":"rediss://127.0.0.1","ca_file":")" + folder_.path() + R"(/bad.pem"})";
  const auto store = CreateRedisStore(config);
  ASSERT_EQ(store.status().code(), StatusCode::kInvalid);
  EXPECT_THAT(store.status().message(), HasSubstr("bad.pem"));
}

TEST_F(RedisTlsTest, APlainServerIsNotMistakenForOne) {
  TestServer plain;
  ExpectRefusal(*Open(plain, "127.0.0.1", "ca.pem"), "TLS");
}

}  // namespace
}  // namespace embercache::redis
