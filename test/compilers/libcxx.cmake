# Run by ctest: the library of ${source}, built by ${compiler} with libc++ and installed into ${work}/prefix. program.cc is compiled
# for each of ${standards}, linked by what pkg-config says, and run. Then comes what gdb shows, and test/package/consumer by
# find_package. The library is built without the optimiser and in large batches: it is there to be compiled and linked, and
# other tests run the code.
include(${CMAKE_CURRENT_LIST_DIR}/../support/run.cmake)

set(ENV{CCACHE_BASEDIR} ${work})
file(REMOVE_RECURSE ${work}/prefix ${work}/consumer)
run(${CMAKE_COMMAND} -S ${source} -B ${work}/build -G Ninja -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_CXX_FLAGS=-stdlib=libc++
  -D CMAKE_BUILD_TYPE=Debug -D CMAKE_CXX_FLAGS_DEBUG=-O0 -D CMAKE_UNITY_BUILD=ON -D CMAKE_UNITY_BUILD_BATCH_SIZE=40
  -D CMAKE_CXX_COMPILER_LAUNCHER=${launcher} -D FARMEM_TESTS=OFF -D FARMEM_EXAMPLES=OFF -D FARMEM_VERBS=OFF)
run(${CMAKE_COMMAND} --build ${work}/build)
run(${CMAKE_COMMAND} --install ${work}/build --prefix ${work}/prefix)

file(GLOB_RECURSE pc_file ${work}/prefix/*/farmem.pc)
cmake_path(GET pc_file PARENT_PATH pc_dir)
set(ENV{PKG_CONFIG_PATH} ${pc_dir})
run(${pkg_config} --cflags --libs farmem)
separate_arguments(flags UNIX_COMMAND "${output}")
foreach(standard IN LISTS standards)
  run(${compiler} -std=${standard} -stdlib=libc++ -O1 -Wall -Werror ${source}/test/compilers/program.cc -o ${work}/${standard} ${flags})
  run(${work}/${standard})
endforeach()

# The types that gdb's printers look into are those of the other standard library.
run(${compiler} -std=c++20 -stdlib=libc++ -O0 -g ${source}/test/gdb/shown.cc -o ${work}/gdb_shown ${flags})
execute_process(COMMAND ${source}/test/gdb/check.sh ${work}/gdb_shown ${work}/build/libfarmem.a ${source}/src/gdb/farmem_gdb.py
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status MATCHES "^(0|77)$")
  message(FATAL_ERROR "${output}")
endif()

run(${CMAKE_COMMAND} -S ${source}/test/package/consumer -B ${work}/consumer -G Ninja -D CMAKE_CXX_COMPILER=${compiler}
  -D CMAKE_CXX_FLAGS=-stdlib=libc++ -D CMAKE_PREFIX_PATH=${work}/prefix -D CMAKE_CXX_COMPILER_LAUNCHER=${launcher})
run(${CMAKE_COMMAND} --build ${work}/consumer --target consumer)
run(${work}/consumer/consumer)
message("${output}")

# Nothing of it may bring the other standard library along.
foreach(program IN ITEMS ${work}/consumer/consumer ${work}/prefix/bin/farmem-agent)
  run(ldd ${program})
  if(output MATCHES "libstdc\\+\\+")
    message(FATAL_ERROR "${program} loads libstdc++, too:\n${output}")
  endif()
endforeach()
