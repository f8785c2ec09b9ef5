# Helpers for the targets of this tree.

# wherry_or_placeholder(VAR [EXECUTABLE]): while the list VAR is empty, puts a generated empty source
# file in it (with a main that returns 0), so that the tree builds before the sources exist.
function(wherry_or_placeholder var)
  if(${var})
    return()
  endif()
  set(file "${CMAKE_CURRENT_BINARY_DIR}/${var}_placeholder.cc")
  if("EXECUTABLE" IN_LIST ARGN)
    file(CONFIGURE OUTPUT "${file}" CONTENT "int main() { return 0; }\n")
  else()
    file(CONFIGURE OUTPUT "${file}" CONTENT "namespace wherry {}\n")
  endif()
  set(${var} "${file}" PARENT_SCOPE)
endfunction()
