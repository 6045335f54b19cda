# Warnings, sanitizers and ccache, as one interface target that every target of ours links.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # The sloppiness is what ccache asks for where there is a precompiled header.
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
endif()

add_library(embercache_options INTERFACE)
target_include_directories(embercache_options INTERFACE
  ${CMAKE_CURRENT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_options(embercache_options INTERFACE
  -Wall -Wextra -Wshadow -Werror -Wno-missing-field-initializers $<$<COMPILE_LANGUAGE:CXX>:-Wconversion>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 warns falsely on std::string at -O2.
  target_compile_options(embercache_options INTERFACE -Wno-restrict)
else()
  target_compile_options(embercache_options INTERFACE -Wthread-safety)
endif()
if(EMBERCACHE_SANITIZE)
  target_compile_options(embercache_options INTERFACE
    -fsanitize=${EMBERCACHE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(embercache_options INTERFACE -fsanitize=${EMBERCACHE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Instrumentation makes g++ 12 see uninitialised values that are not there.
    target_compile_options(embercache_options INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
# embercache_sync_points(TARGET): for a library with sync points (src/base/sync_point.h), and for
# tests that hold threads at them.
function(embercache_sync_points target)
  if(EMBERCACHE_SYNC_POINTS)
    target_compile_definitions(${target} PRIVATE EMBERCACHE_SYNC_POINTS)
  endif()
endfunction()

# embercache_library(NAME SOURCES... [DEPS targets...]): one layer of src/.
function(embercache_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:embercache_options> ${ARG_DEPS})
endfunction()

# For what tests spend their time in: where it is instrumented and not optimised at all, they take
# minutes.
function(embercache_optimised)
  if(EMBERCACHE_SANITIZE)
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -O1)
    endforeach()
  endif()
endfunction()

# For a target with a precompiled header: g++ has to leave it in what it shows ccache, and warns
# falsely on std::string where its header is precompiled.
function(embercache_precompiled target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE
      -fpch-preprocess -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
endfunction()

# GoogleTest's headers, compiled once for all test programs.
if(EMBERCACHE_BUILD_TESTS)
  # An executable, since it has to be compiled as the tests are.
  add_executable(embercache_test_headers EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/test_headers.cc)
  target_link_libraries(embercache_test_headers PRIVATE embercache_options fmt::fmt GTest::gmock)
  embercache_precompiled(embercache_test_headers)
  target_precompile_headers(embercache_test_headers PRIVATE
    <gmock/gmock.h> <gtest/gtest.h> <fmt/format.h>)
endif()

# embercache_test(NAME SOURCES... [DEPS targets...]): one GoogleTest program, one ctest entry a test.
include(GoogleTest)
function(embercache_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE embercache_options ${ARG_DEPS} GTest::gmock_main)
  target_precompile_headers(${name} REUSE_FROM embercache_test_headers)
  embercache_precompiled(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 120)
endfunction()
