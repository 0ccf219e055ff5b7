# Run by ctest: installs farmem into ${work}/root and builds ${source}/test/package/consumer against it twice, once with
# find_package and once with what pkg-config says, and runs both programs. The build at hand is installed if it has the
# ${linkage} that is asked for; otherwise one is configured and built beside it, with the same flags, so that ccache has the
# objects: test/run has set CCACHE_BASEDIR to the one folder, and here it is the other one, which makes their paths the same.
include(${CMAKE_CURRENT_LIST_DIR}/../support/run.cmake)

function(require_file path)
  if(NOT EXISTS ${path})
    message(FATAL_ERROR "the install lacks ${path}")
  endif()
endfunction()

file(REMOVE_RECURSE ${work}/root ${work}/consumer ${work}/pkg-config)
file(MAKE_DIRECTORY ${work}/pkg-config)
set(root ${work}/root)

set(want_shared OFF)
if(linkage STREQUAL "shared")
  set(want_shared ON)
endif()
if((want_shared AND configured_shared) OR (NOT want_shared AND NOT configured_shared))
  set(installed ${build})
else()
  set(installed ${build}-${linkage})
  set(ENV{CCACHE_BASEDIR} ${installed})
  run(${CMAKE_COMMAND} -S ${source} -B ${installed} -G Ninja -D CMAKE_BUILD_TYPE=${build_type}
    -D CMAKE_CXX_FLAGS_DEBUG=${flags} -D CMAKE_UNITY_BUILD=${unity} -D FARMEM_AUDIT=${audit} -D BUILD_SHARED_LIBS=${want_shared}
    -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_CXX_COMPILER_LAUNCHER=${launcher} -D FARMEM_TESTS=OFF -D FARMEM_EXAMPLES=OFF)
  run(${CMAKE_COMMAND} --build ${installed} --target all)
endif()
run(${CMAKE_COMMAND} --install ${installed} --prefix ${root})

# Every public header is installed, and nothing else is.
file(GLOB_RECURSE ours RELATIVE ${source}/include ${source}/include/*.h)
file(GLOB_RECURSE theirs RELATIVE ${root}/include ${root}/include/*)
list(SORT ours)
list(SORT theirs)
if(NOT ours STREQUAL theirs)
  message(FATAL_ERROR "installed headers differ from include/:\n${theirs}\n${ours}")
endif()

run(${CMAKE_COMMAND} -S ${source}/test/package/consumer -B ${work}/consumer -G Ninja -D CMAKE_BUILD_TYPE=Release
  -D CMAKE_PREFIX_PATH=${root} -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_CXX_COMPILER_LAUNCHER=${launcher})
run(${CMAKE_COMMAND} --build ${work}/consumer)
run(${work}/consumer/consumer)
message("find_package: ${output}")

# A program's own checks work whatever the library was built with.
run(${work}/consumer/mistakes none)
foreach(mistake IN ITEMS "scope:a scope belongs to the thread that opened it" "pin:a pin is used that is empty"
    "reference:an fm::ref is read that is in no managed object" "array:an index is past the end of an array"
    "stale:an object is made with an fm::ref that names no object")
  string(REGEX MATCH "^([a-z]+):(.+)$" matched ${mistake})
  set(expected "${CMAKE_MATCH_2}")
  execute_process(COMMAND ${work}/consumer/mistakes ${CMAKE_MATCH_1} RESULT_VARIABLE status OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  string(FIND "${output}" "${expected}" place)
  if(status EQUAL 0 OR place EQUAL -1)
    message(FATAL_ERROR "the mistake ${mistake}: status ${status}, output:\n${output}")
  endif()
endforeach()

file(GLOB_RECURSE pc_file ${root}/*/farmem.pc)
require_file("${pc_file}")
get_filename_component(pc_dir ${pc_file} DIRECTORY)
get_filename_component(lib_dir ${pc_dir} DIRECTORY)
set(ENV{PKG_CONFIG_PATH} ${pc_dir})
run(${pkg_config} --cflags --libs farmem)
separate_arguments(flags UNIX_COMMAND "${output}")
run(${compiler} -std=c++20 ${source}/test/package/consumer/main.cc -o ${work}/pkg-config/consumer ${flags} -Wl,-rpath,${lib_dir})
run(${work}/pkg-config/consumer)
message("pkg-config: ${output}")
run(${pkg_config} --modversion farmem)
message("version: ${output}")

if(has_agent)
  require_file(${root}/bin/farmem-agent)
  run(${root}/bin/farmem-agent --version)
  message("agent: ${output}")
endif()
