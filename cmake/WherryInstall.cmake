# Install rules: programs, the systemd unit, the client library with its headers, and the CMake
# package "Wherry" with one target, Wherry::client.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Wherry")

install(TARGETS wherryd wherryctl wherry-stat wherry-bench
        RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(TARGETS wherry_client_shared EXPORT WherryTargets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")

install(FILES configs/wherryd.service DESTINATION lib/systemd/system)
install(FILES configs/engine.json configs/engine.two_pollers.json configs/engine.schema.json
              configs/README.md
        DESTINATION "${CMAKE_INSTALL_DATADIR}/wherry/configs")

# Headers include each other as "shm/..." and "clientlib/...": include/wherry is the include root.
install(DIRECTORY shm clientlib DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/wherry"
        FILES_MATCHING PATTERN "*.h")

install(EXPORT WherryTargets NAMESPACE Wherry:: DESTINATION "${package_dir}")
configure_package_config_file(cmake/WherryConfig.cmake.in
                              "${PROJECT_BINARY_DIR}/WherryConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/WherryConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/WherryConfig.cmake"
              "${PROJECT_BINARY_DIR}/WherryConfigVersion.cmake"
        DESTINATION "${package_dir}")
