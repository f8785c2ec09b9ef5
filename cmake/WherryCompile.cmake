# Compile settings of every target in this tree: the language, warnings, sanitizers, include root.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow)
if(WHERRY_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # gcc 12 sees an overlap in "text" + std::to_string(n) that is none (its bug 105651).
  add_compile_options(-Wno-restrict)
endif()

if(WHERRY_SANITIZE)
  # Line tables only and -Og: these builds take longest of all.
  add_compile_options(-fsanitize=${WHERRY_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -Og -g1)
  add_link_options(-fsanitize=${WHERRY_SANITIZE})
  if(WHERRY_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The doorbell's seq_cst fences: gcc says at each that the thread sanitizer does not model it.
    add_compile_options(-Wno-tsan)
  endif()
endif()

if(WHERRY_LIBFUZZER)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "WHERRY_LIBFUZZER: wanted clang, got ${CMAKE_CXX_COMPILER_ID}; configure "
                        "with -DCMAKE_CXX_COMPILER=clang++")
  endif()
  # Everything tells the fuzzer where it has been; only the targets are linked with its main.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Includes are written from the root: "shm/status.h".
include_directories("${PROJECT_SOURCE_DIR}")
add_compile_definitions(WHERRY_VERSION="${PROJECT_VERSION}")

# All programs in one folder, so that scripts and tests find them.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
