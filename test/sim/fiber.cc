#include "fiber.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

extern "C" void fm_sim_switch(void** save, void* to, std::uintptr_t thread_local_base);

// What a call must preserve goes to the old stack and comes from the new one; between the two, the thread-local storage changes.
asm(R"(
  .text
  .globl fm_sim_switch
  .hidden fm_sim_switch
  .type fm_sim_switch, @function
fm_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  wrfsbase %rdx
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size fm_sim_switch, .-fm_sim_switch
)");

namespace fm::sim {

namespace {

constexpr std::size_t stack_bytes = 1 << 20;
constexpr std::size_t guard_bytes = 4096;
constexpr std::size_t saved_registers = 6;
constexpr unsigned long hwcap2_fsgsbase = 1 << 1;

template <class F>
F* of_the_library(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

// Not the ones in interpose.cc.
void futex(std::uint32_t* word, int op, std::uint32_t value) {
  static auto* const call = of_the_library<decltype(::syscall)>("syscall");
  call(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}
void let_others_run() {
  static auto* const call = of_the_library<decltype(::sched_yield)>("sched_yield");
  call();
}

}  // namespace

bool fiber::possible() noexcept { return (::getauxval(AT_HWCAP2) & hwcap2_fsgsbase) != 0; }

fiber::~fiber() {
  if (stack_ != nullptr) ::munmap(stack_, stack_bytes);
}

void fiber::adopt() noexcept { handle_ = ::pthread_self(); }

void* fiber::park(void* self) noexcept {
  fiber& f = *static_cast<fiber*>(self);
  __atomic_store_n(&f.parked_, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(&f.go_, __ATOMIC_ACQUIRE) == 0) futex(&f.go_, FUTEX_WAIT, 0);
  return nullptr;
}

bool fiber::make(void (*entry)() noexcept) noexcept {
  static auto* const create = of_the_library<decltype(::pthread_create)>("pthread_create");
  futex(&go_, FUTEX_WAKE, 0);  // looked up before there is a second thread of the kernel
  stack_ = ::mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack_ == MAP_FAILED || ::mprotect(stack_, guard_bytes, PROT_NONE) != 0) return false;
  // Where `entry` finds its return address there is none; the stack is aligned as after a call.
  auto** top = reinterpret_cast<void**>(static_cast<char*>(stack_) + stack_bytes) - 2;
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  stack_pointer_ = top - saved_registers;
  if (create(&handle_, nullptr, park, this) != 0) return false;
  // Until it is parked, it uses the storage itself.
  while (__atomic_load_n(&parked_, __ATOMIC_ACQUIRE) == 0) let_others_run();
  return true;
}

void fiber::switch_to(fiber& to) noexcept {
  // A thread's handle is the address of its thread control block, which is what %fs points to.
  fm_sim_switch(&stack_pointer_, to.stack_pointer_, static_cast<std::uintptr_t>(to.handle_));
}

void fiber::release() noexcept {
  __atomic_store_n(&go_, 1, __ATOMIC_RELEASE);
  futex(&go_, FUTEX_WAKE, 1);
}

}  // namespace fm::sim
