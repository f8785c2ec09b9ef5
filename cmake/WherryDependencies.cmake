# Finds the libraries we use, all from the distribution, and names every missing one at once.

set(missing "")

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

macro(wherry_find package debian_package)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    list(APPEND missing "${package} (Debian: ${debian_package})")
  endif()
endmacro()

wherry_find(nlohmann_json nlohmann-json3-dev 3.11)
wherry_find(spdlog libspdlog-dev 1.10)
wherry_find(CLI11 libcli11-dev 2.1)
wherry_find(Boost libboost-dev 1.74)
if(WHERRY_BUILD_TESTS)
  wherry_find(GTest libgtest-dev 1.12)
endif()

# Header only, and Debian ships no CMake package for it: <concurrentqueue/concurrentqueue.h>.
find_path(WHERRY_CONCURRENTQUEUE_INCLUDE concurrentqueue/concurrentqueue.h)
mark_as_advanced(WHERRY_CONCURRENTQUEUE_INCLUDE)
if(WHERRY_CONCURRENTQUEUE_INCLUDE)
  add_library(wherry_concurrentqueue INTERFACE)
  target_include_directories(wherry_concurrentqueue SYSTEM
                             INTERFACE "${WHERRY_CONCURRENTQUEUE_INCLUDE}")
else()
  list(APPEND missing "concurrentqueue (Debian: libconcurrentqueue-dev)")
endif()

if(missing)
  list(JOIN missing "\n    " missing)
  message(FATAL_ERROR "Wherry needs libraries that are not installed:\n    ${missing}\n"
                      "  Run tools/setup.sh (as root), then configure again.")
endif()
