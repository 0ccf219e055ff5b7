# Compiles one bad program and checks what the compiler says of it. Run as
#   cmake -D SOURCE=... -D COMPILER=... -D "FLAGS=-std=c++20|-I..." -P check.cmake
#
# The first line of the program is `// expect: TEXT`: it must fail to compile, with one error, whose line holds TEXT.
# `// expect: to compile` is a control: the same flags must accept it. A second line `// errors: many` (and why) allows
# further errors. An error that the file could not be read or included proves nothing and always fails the test.
cmake_minimum_required(VERSION 3.25)

# The leading space keeps CMake from wrapping the text.
function(refuse text)
  message(FATAL_ERROR " ${SOURCE}: ${text}")
endfunction()

file(STRINGS ${SOURCE} lines LIMIT_COUNT 2)
list(GET lines 0 first)
if(NOT first MATCHES "^// expect: (.+)$")
  refuse("the first line is not `// expect: ...`")
endif()
set(expected "${CMAKE_MATCH_1}")
set(many FALSE)
if(lines MATCHES ";// errors: many")
  set(many TRUE)
endif()

string(REPLACE "|" ";" flags "${FLAGS}")
set(ENV{LC_ALL} C)
execute_process(COMMAND ${COMPILER} ${flags} -fsyntax-only ${SOURCE}
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)

if(expected STREQUAL "to compile")
  if(NOT status EQUAL 0)
    refuse("should compile, but:\n${output}")
  endif()
  return()
endif()
if(status EQUAL 0)
  refuse("compiles, but should fail with: ${expected}")
endif()

# Brackets and semicolons mean something in a CMake list, so they are replaced, in what is sought as well.
foreach(text output expected)
  string(REGEX REPLACE "[][;]" "_" ${text} "${${text}}")
endforeach()
string(REGEX MATCHALL "[^\n]*error: [^\n]*" errors "${output}")
list(LENGTH errors count)
set(found FALSE)
foreach(error IN LISTS errors)
  string(FIND "${error}" "${expected}" at)
  if(NOT at EQUAL -1)
    set(found TRUE)
  endif()
  if(error MATCHES "No such file or directory|file not found")
    refuse("a file is missing:\n${output}")
  endif()
endforeach()
if(NOT found)
  refuse("no error says: ${expected}\n${output}")
endif()
if(count GREATER 1 AND NOT many)
  refuse("${count} errors instead of one:\n${output}")
endif()
