# One executable of all tests; CTest runs it once per suite, so that a crash costs one suite and suites run side by side.
# lazuli_tests_front holds the suites of the front end alone: what the short run under the sanitizers builds.
find_package(doctest REQUIRED)
file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*.cpp)
list(FILTER test_sources EXCLUDE REGEX "/tests/(package|readme)/")
foreach(source IN LISTS test_sources)  # a test that includes a backend's header tests that backend
  file(STRINGS ${source} of_llvm REGEX "^#include \"runtime/cpu/")
  file(STRINGS ${source} of_opencl REGEX "^#include \"runtime/opencl/")
  if((of_llvm AND NOT LAZULI_LLVM) OR (of_opencl AND NOT LAZULI_OPENCL))
    list(REMOVE_ITEM test_sources ${source})
  endif()
endforeach()
# It makes doctest itself, which a precompiled header has only declared.
set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/main.cpp PROPERTIES
  SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
# Its operator new is not for the code of other tests to be compiled with.
set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/runtime/failing_new.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
set(front_sources ${test_sources})
list(FILTER front_sources INCLUDE REGEX "/tests/((core|ir|errors)/.*|[^/]*)$")

function(lazuli_test_executable target)
  add_executable(${target} ${ARGN})
  lazuli_settings(${target})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)  # it compiles longer than it runs
  # core and ir first, so that theirs of inline functions are linked, which alone may be for a sanitizer.
  target_link_libraries(${target} PRIVATE
    lazuli_ir lazuli_core lazuli doctest::doctest ZLIB::ZLIB Threads::Threads ${CMAKE_DL_LIBS})
  target_compile_definitions(${target} PRIVATE
    DOCTEST_CONFIG_SUPER_FAST_ASSERTS
    LAZULI_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    LAZULI_TEST_DIR="${PROJECT_SOURCE_DIR}/tests"
    LAZULI_BIN_DIR="${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_BINDIR}")
  target_precompile_headers(${target} PRIVATE
    ${LAZULI_COMMON_HEADERS} <functional> <random> <doctest/doctest.h>
    ${PROJECT_SOURCE_DIR}/core/error.h ${PROJECT_SOURCE_DIR}/core/graph.h)
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_BINDIR})
endfunction()

lazuli_test_executable(lazuli_tests ${test_sources})
target_link_libraries(lazuli_tests PRIVATE lazuli_tools nlohmann_json::nlohmann_json)
lazuli_test_executable(lazuli_tests_front ${front_sources})
set_target_properties(lazuli_tests_front PROPERTIES EXCLUDE_FROM_ALL ON)

set(suites core ir codegen runtime nn tools ops conformance fuzz limits errors golden)
foreach(suite IN LISTS suites)
  add_test(NAME ${suite} COMMAND lazuli_tests --test-suite=${suite})
endforeach()
list(JOIN suites "," named)
add_test(NAME other COMMAND lazuli_tests --test-suite-exclude=${named})
