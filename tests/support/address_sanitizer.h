#pragma once

// EMBERCACHE_ASAN is defined in code that is built with AddressSanitizer, by g++ or by clang.
#if defined(__SANITIZE_ADDRESS__)
#define EMBERCACHE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMBERCACHE_ASAN 1
#endif
#endif
