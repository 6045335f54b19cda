#include "src/store/redis/command.h"

#include <gtest/gtest.h>

#include <string>

namespace embercache::redis {
namespace {

ConstBuffer Bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string Sent(const Wire& wire) {
  std::string sent;
  for (const ConstBuffer& piece : wire.pieces) {
    sent.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return sent;
}

TEST(CommandWriterTest, CommandsAreArraysOfBulkStrings) {
  CommandWriter writer;
  const std::string_view binary("a\0\r\n", 4);
  const Wire wire = writer.Add({"GET", binary}).Begin(2).Word("TTL").Word(uint64_t{7}).Finish();
  EXPECT_EQ(Sent(wire), "*2\r\n$3\r\nGET\r\n$4\r\n" + std::string(binary) +
                            "\r\n*2\r\n$3\r\nTTL\r\n$1\r\n7\r\n");
  EXPECT_EQ(wire.commands, 2U);
  EXPECT_EQ(wire.bytes, Sent(wire).size());
}

TEST(CommandWriterTest, PayloadIsSentFromWhereItLies) {
  const std::string page1 = "first page", page2 = "second";
  const ConstBuffer pages[] = {Bytes(page1), {}, Bytes(page2)};
  CommandWriter writer;
  writer.Begin(4).Word("SET").Word("k").Word(Bytes("<head>"), pages).Word("NX");
  writer.Add({"PING"});
  Wire wire = writer.Finish();
  const Wire moved = std::move(wire);
  EXPECT_EQ(Sent(moved),
            "*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$22\r\n<head>first pagesecond\r\n$2\r\nNX\r\n"
            "*1\r\n$4\r\nPING\r\n");
  ASSERT_EQ(moved.pieces.size(), 4U);
  EXPECT_EQ(static_cast<const void*>(moved.pieces[1].data()), page1.data());
  EXPECT_EQ(static_cast<const void*>(moved.pieces[2].data()), page2.data());
}

TEST(CommandWriterTest, AFinishedWriterIsEmpty) {
  CommandWriter writer;
  (void)writer.Add({"GET", "k"}).Finish();
  const Wire wire = writer.Add({"PING"}).Finish();
  EXPECT_EQ(Sent(wire), "*1\r\n$4\r\nPING\r\n");
  EXPECT_EQ(wire.commands, 1U);
}

}  // namespace
}  // namespace embercache::redis
