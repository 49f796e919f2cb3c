# One executable of all tests; CTest runs it once per suite, so that a crash costs one suite and suites run side by side.
find_package(doctest REQUIRED)
file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*.cpp)
list(FILTER test_sources EXCLUDE REGEX "/tests/(package|readme)/")

add_executable(lazuli_tests ${test_sources})
lazuli_settings(lazuli_tests)
target_link_libraries(lazuli_tests PRIVATE
  lazuli_tools doctest::doctest nlohmann_json::nlohmann_json ZLIB::ZLIB Threads::Threads
  ${CMAKE_DL_LIBS})
target_compile_definitions(lazuli_tests PRIVATE
  DOCTEST_CONFIG_SUPER_FAST_ASSERTS
  LAZULI_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
  LAZULI_TEST_DIR="${PROJECT_SOURCE_DIR}/tests"
  LAZULI_BIN_DIR="${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_BINDIR}")
set_target_properties(lazuli_tests PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_BINDIR})
if(TARGET lazuli_cli)
  add_dependencies(lazuli_tests lazuli_cli)
endif()

set(suites core ir codegen runtime nn tools ops conformance fuzz limits errors golden)
foreach(suite IN LISTS suites)
  add_test(NAME ${suite} COMMAND lazuli_tests --test-suite=${suite})
endforeach()
list(JOIN suites "," named)
add_test(NAME other COMMAND lazuli_tests --test-suite-exclude=${named})
