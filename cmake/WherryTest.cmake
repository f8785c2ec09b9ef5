# Helpers that declare tests. ctest names are <tier>/<name>, in a sanitizer build with "@asan" or
# "@tsan" behind, since tests/run.sh runs several builds as one; the tier is also the ctest label.

set(WHERRY_TEST_TIERS unit stress integration faults compat fuzz cli vm bench)
set(WHERRY_TEST_SUFFIX "")
if(WHERRY_SANITIZE MATCHES "address")
  set(WHERRY_TEST_SUFFIX "@asan")
elseif(WHERRY_SANITIZE MATCHES "thread")
  set(WHERRY_TEST_SUFFIX "@tsan")
endif()

# wherry_test(NAME <name> TIER <tier> SOURCES <file>... [LIBS <target>...] [TIMEOUT <s>] [SERIAL])
# One GoogleTest executable, test_<tier>_<name>, run as one ctest test. Its code has two macros:
# WHERRY_BIN_DIR, where the programs are, and WHERRY_SOURCE_DIR, for files kept with the tests.
# TIMEOUT only catches hangs and must fit WHERRY_LONG=1 too; without it tests/run.sh sets one.
# SERIAL: nothing else runs beside it.
function(wherry_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "SERIAL" "NAME;TIER;TIMEOUT" "SOURCES;LIBS")
  set(target test_${arg_TIER}_${arg_NAME})
  wherry_register_test(${target})
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE ${arg_LIBS} GTest::gtest_main Threads::Threads)
  target_compile_definitions(${target} PRIVATE WHERRY_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
                                               WHERRY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_dependencies(wherry_tests ${target})
endfunction()

# wherry_script_test(NAME <name> TIER <tier> COMMAND <command>... [TIMEOUT <s>] [SERIAL])
# Passes when the command exits 0. Generator expressions such as $<TARGET_FILE:wherryd> work.
function(wherry_script_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "SERIAL" "NAME;TIER;TIMEOUT" "COMMAND")
  wherry_register_test(${arg_COMMAND})
endfunction()

macro(wherry_register_test)
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "test '${arg_NAME}': unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_NAME OR NOT arg_TIER IN_LIST WHERRY_TEST_TIERS)
    message(FATAL_ERROR "test '${arg_NAME}': wanted a NAME and a TIER of "
                        "'${WHERRY_TEST_TIERS}', got TIER '${arg_TIER}'")
  endif()
  set(test "${arg_TIER}/${arg_NAME}${WHERRY_TEST_SUFFIX}")
  add_test(NAME ${test} COMMAND ${ARGN})
  set_tests_properties(${test} PROPERTIES LABELS ${arg_TIER})
  if(arg_TIMEOUT)
    set_tests_properties(${test} PROPERTIES TIMEOUT ${arg_TIMEOUT})
  endif()
  if(arg_SERIAL)
    set_tests_properties(${test} PROPERTIES RUN_SERIAL TRUE)
  endif()
endmacro()
