# `cmake --install`: the program, the libraries of the cache and its stores, the public headers, and
# the package that find_package(embercache) takes: it gives the target embercache::embercache.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

add_library(embercache_engine INTERFACE)
target_link_libraries(embercache_engine INTERFACE embercache_cache embercache_stores)
set_target_properties(embercache_engine PROPERTIES EXPORT_NAME embercache)

install(TARGETS embercache_engine
    embercache_base embercache_cache embercache_io embercache_memory embercache_mooncake_client
    embercache_store embercache_store_file embercache_store_memory embercache_store_mooncake
    embercache_store_plugin embercache_store_redis embercache_stores
  EXPORT embercache COMPONENT engine INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Encoders and media are the server's.
install(DIRECTORY include/embercache DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT engine
  PATTERN encoder.h EXCLUDE PATTERN media.h EXCLUDE)
install(TARGETS embercache RUNTIME COMPONENT program)

set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/embercache)
install(EXPORT embercache NAMESPACE embercache:: FILE embercache-targets.cmake
  DESTINATION ${folder} COMPONENT engine)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/embercache-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/embercache-config-version.cmake cmake/embercache-config.cmake
  DESTINATION ${folder} COMPONENT engine)
