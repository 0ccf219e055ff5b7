# Install rules: headers, library, agent, and what find_package(farmem) and pkg-config read. test/package proves them.
include(CMakePackageConfigHelpers)

# A component of its own, so that headers can be installed, and looked at, before anything is built.
install(DIRECTORY include/farmem TYPE INCLUDE COMPONENT headers FILES_MATCHING PATTERN "*.h")
install(TARGETS farmem EXPORT farmem_targets)
if(TARGET farmem-verbs)
  install(TARGETS farmem-verbs LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET farmem-agent)
  # An installed agent finds a shared library beside it, wherever the tree was put.
  file(RELATIVE_PATH _bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(farmem-agent PROPERTIES INSTALL_RPATH $ORIGIN/${_bin_to_lib})
  install(TARGETS farmem-agent)
endif()

# With libc++ the library has fmt and spdlog in it (cmake/formatting.cmake).
set(FARMEM_LINKS_FORMATTING ON)
if(FARMEM_LIBCXX)
  set(FARMEM_LINKS_FORMATTING OFF)
endif()
set(_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/farmem)
install(EXPORT farmem_targets NAMESPACE farmem:: FILE farmemTargets.cmake DESTINATION ${_config_dir})
configure_package_config_file(cmake/farmemConfig.cmake.in ${PROJECT_BINARY_DIR}/farmemConfig.cmake
  INSTALL_DESTINATION ${_config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/farmemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/farmemConfig.cmake ${PROJECT_BINARY_DIR}/farmemConfigVersion.cmake
  DESTINATION ${_config_dir})

# A static library leaves its own dependencies to the program that links it; a shared one brings them.
if(BUILD_SHARED_LIBS)
  set(FARMEM_PC_REQUIRES_KEY Requires.private)
else()
  set(FARMEM_PC_REQUIRES_KEY Requires)
endif()
set(FARMEM_PC_REQUIRES "")
if(FARMEM_LINKS_FORMATTING)
  set(FARMEM_PC_REQUIRES "fmt spdlog")
endif()
set(FARMEM_PC_CFLAGS "")
if(FARMEM_AUDIT)
  set(FARMEM_PC_CFLAGS " -DFARMEM_AUDIT")
endif()
if(FARMEM_CHECKED)
  string(APPEND FARMEM_PC_CFLAGS " -DFARMEM_CHECKED")
endif()
# Relative to where the file lies, so that an installed tree can be moved.
file(RELATIVE_PATH FARMEM_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/farmem.pc.in ${PROJECT_BINARY_DIR}/farmem.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/farmem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE TYPE DOC)
# gdb looks for what belongs to a shared library under its whole path. Otherwise the library has it (cmake/gdb_script.cmake).
if(BUILD_SHARED_LIBS)
  install(FILES src/gdb/farmem_gdb.py RENAME libfarmem.so.${PROJECT_VERSION}-gdb.py
    DESTINATION ${CMAKE_INSTALL_DATADIR}/gdb/auto-load/${CMAKE_INSTALL_FULL_LIBDIR})
endif()
install(FILES src/gdb/farmem_gdb.py DESTINATION ${CMAKE_INSTALL_DATADIR}/farmem)
