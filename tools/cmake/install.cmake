# What `cmake --install` puts where: libraries, the module, the headers that <lazuli/lazuli.h> reaches, the CMake package,
# the pkg-config file, the shipped data.
set(installed lazuli lazuli_nn lazuli_runtime lazuli_codegen lazuli_ir lazuli_core)
install(TARGETS ${installed} EXPORT lazuli-targets ARCHIVE)
if(TARGET lazuli_llvm)
  install(TARGETS lazuli_llvm LIBRARY DESTINATION ${LAZULI_MODULE_DIR})
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/nn/data)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/nn/data/ DESTINATION ${LAZULI_DATA_DIR})
endif()

install(CODE "
  set(source_dir \"${PROJECT_SOURCE_DIR}\")
  set(binary_dir \"${PROJECT_BINARY_DIR}\")
  set(include_dir \"\${CMAKE_INSTALL_PREFIX}/${LAZULI_INCLUDE_DIR}/lazuli\")
  include(\"${PROJECT_SOURCE_DIR}/tools/cmake/install_headers.cmake\")")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lazuli)
install(EXPORT lazuli-targets NAMESPACE lazuli:: DESTINATION ${package_dir})
configure_package_config_file(tools/cmake/lazuli-config.cmake.in lazuli-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(lazuli-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lazuli-config.cmake
              ${PROJECT_BINARY_DIR}/lazuli-config-version.cmake DESTINATION ${package_dir})

file(RELATIVE_PATH LAZULI_PREFIX_FROM_PC /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(tools/cmake/lazuli.pc.in lazuli.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/lazuli.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
