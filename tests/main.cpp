// Entry of the test executable: doctest's own main. Test cases live in tests/<folder>/<thing>_test.cpp.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
