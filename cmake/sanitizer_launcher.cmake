# The sanitizer runtimes of gcc 12 and clang 14 reserve fixed parts of the address space and abort when the kernel has
# put a mapping there, which happens with more than 28 bits of mmap randomisation (the default of newer kernels is 32).
# Included when sanitizers are on: runs every test program, test discovery included, without randomisation if the
# machine needs that. Child processes inherit it.
set(_bits_file /proc/sys/vm/mmap_rnd_bits)
if(EXISTS ${_bits_file})
  file(READ ${_bits_file} _bits)
  string(STRIP "${_bits}" _bits)
  if(_bits GREATER 28)
    find_program(FARMEM_SETARCH setarch)
    set(_status 1)
    if(FARMEM_SETARCH)
      execute_process(COMMAND ${FARMEM_SETARCH} -R true RESULT_VARIABLE _status OUTPUT_QUIET ERROR_QUIET)
    endif()
    if(_status EQUAL 0)
      set(CMAKE_CROSSCOMPILING_EMULATOR ${FARMEM_SETARCH};-R)
    else()
      message(WARNING "vm.mmap_rnd_bits is ${_bits} and setarch -R does not work here: sanitized programs may abort with "
                      "'unexpected memory mapping'; lower it with: sysctl vm.mmap_rnd_bits=28")
    endif()
  endif()
endif()
