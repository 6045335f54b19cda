// A library that has a part of Mooncake's C ABI.
extern "C" void* mooncake_store_create() {
  return nullptr;
}
