// Fibers: contexts on stacks of their own, switched without the kernel's help.
#pragma once

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(EVO_UCONTEXT)
#define EVO_UCONTEXT
#endif
#if defined(EVO_UCONTEXT)
#include <ucontext.h>
#endif

namespace {
namespace evo {

constexpr size_t stack_bytes = 256 << 10;  // address space; a page is memory only once it is touched
constexpr size_t shallow_bytes = 64 << 10;  // whole pages of any system this runs on

#if defined(EVO_UCONTEXT)

typedef ucontext_t Context;

inline void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }

inline void prepare(Context& fiber, char* bottom, size_t bytes, void (*entry)()) {
    getcontext(&fiber);
    fiber.uc_stack.ss_sp = bottom;
    fiber.uc_stack.ss_size = bytes;
    fiber.uc_link = nullptr;
    makecontext(&fiber, entry, 0);
}

#else

struct Context {
    void* stack_pointer;
};

// Saves what a call must preserve on the stack, stores the stack pointer through the first argument, loads the second
// and goes on there. It jumps instead of returning: the processor would predict a return to the wrong fiber.
extern "C" void evo_switch_context(void** from, void* to) __asm__("evo_switch_context");

#if defined(__x86_64__)
// Six registers and the entry; then sp must be 8 mod 16, as after a call.
constexpr int frame_words = 7, entry_word = 6, top_words = 5;
__asm__(R"(
    .text
    .p2align 4
    .local evo_switch_context
    .type evo_switch_context, @function
evo_switch_context:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmpq *%rcx
    .size evo_switch_context, .-evo_switch_context
)");
#else
// Twelve registers, of which x30, the last, is the entry, and eight of floating point; then sp must be 0 mod 16.
constexpr int frame_words = 20, entry_word = 11, top_words = 4;
__asm__(R"(
    .text
    .p2align 4
    .local evo_switch_context
    .type evo_switch_context, %function
evo_switch_context:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size evo_switch_context, .-evo_switch_context
)");
#endif

__attribute__((always_inline)) inline void switch_context(Context& from, Context& to) {
    evo_switch_context(&from.stack_pointer, to.stack_pointer);
}

inline void prepare(Context& fiber, char* bottom, size_t bytes, void (*entry)()) {
    void** top = reinterpret_cast<void**>(bottom + bytes);
    void** frame = top - top_words - frame_words;
    for (void** word = frame; word < top; ++word) {
        *word = nullptr;
    }
    frame[entry_word] = reinterpret_cast<void*>(entry);
    fiber.stack_pointer = frame;
}

#endif

// Stacks from one mapping, a page without access below each: an overflow is a fault, not a neighbour's data.
struct Stacks {
    char* memory;
    unsigned count, used;
    unsigned released[1024];
    unsigned released_count;

    static size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

    bool reserve(unsigned wanted) {
        if (wanted <= count) {
            return true;
        }
        unmap();
        size_t stride = stack_bytes + page();
        void* mapping = mmap(nullptr, wanted * stride, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapping == MAP_FAILED) {
            return false;
        }
        memory = static_cast<char*>(mapping);
        count = wanted;
        for (unsigned i = 0; i < count; ++i) {
            if (mprotect(memory + i * stride, page(), PROT_NONE) != 0) {
                return false;
            }
        }
        return true;
    }

    void clear() { used = released_count = 0; }

    // The number of a stack nobody uses; `reserve` was told how many that can be at once.
    unsigned take() { return released_count ? released[--released_count] : used++; }

    void release(unsigned stack) { released[released_count++] = stack; }

    // Tops lie at different offsets in their pages, or every fiber's frame would compete for the same cache lines.
    void enter(Context& fiber, unsigned stack, void (*entry)()) {
        size_t shift = stack * 448 % 4096;
        prepare(fiber, memory + stack * (stack_bytes + page()) + page(), stack_bytes - shift, entry);
    }

    // Fills what the last call left: a local array that is read before it is written must tell nothing of it. The tops
    // are filled and not given back, or the next call, which may be a timed one, would pay for getting them anew.
    void poison() {
        for (unsigned i = 0; i < count; ++i) {
            char* bottom = memory + i * (stack_bytes + page()) + page();
            madvise(bottom, stack_bytes - shallow_bytes, MADV_DONTNEED);
            memset(bottom + stack_bytes - shallow_bytes, 0xff, shallow_bytes);
        }
    }

    void unmap() {
        if (memory) {
            munmap(memory, count * (stack_bytes + page()));
        }
        memory = nullptr;
        count = 0;
    }
};

}  // namespace evo
}  // namespace
