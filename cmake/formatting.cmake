# farmem_formatting: the libraries fmt and spdlog, as the targets of farmem link them. Debian compiles both with libstdc++. If
# CMAKE_CXX_FLAGS say -stdlib=libc++, their headers are used alone: a program that links farmem then needs neither.
include(CheckCXXSourceCompiles)
unset(FARMEM_LIBCXX CACHE)  # the flags may have changed
check_cxx_source_compiles("#include <version>
#ifndef _LIBCPP_VERSION
#error another standard library
#endif
int main() {}" FARMEM_LIBCXX)
if(NOT FARMEM_LIBCXX)
  set(farmem_formatting fmt::fmt spdlog::spdlog)
  return()
endif()
add_library(farmem_header_only INTERFACE)
target_link_libraries(farmem_header_only INTERFACE fmt::fmt-header-only)
# Not by linking spdlog::spdlog_header_only, which links the compiled fmt.
target_compile_definitions(farmem_header_only INTERFACE SPDLOG_FMT_EXTERNAL)
target_include_directories(farmem_header_only SYSTEM INTERFACE
  $<TARGET_PROPERTY:spdlog::spdlog_header_only,INTERFACE_INCLUDE_DIRECTORIES>)
set(farmem_formatting $<BUILD_INTERFACE:farmem_header_only>)
