// One launch: the grid's blocks one after another, each on fresh NaN patterns in its shared memory.
#pragma once

namespace {
namespace evo {

// Takes a thread that has ended out of the block; whom it kept waiting may run. The thread to go on with, or null.
inline Thread* end_thread(Thread& self) {
    unsigned warp_number = self.number / warp_size, lane = self.number % warp_size;
    Warp& warp = runtime.warps[warp_number];
    self.state = State::done;
    warp.present &= ~(1u << lane);
    if (--runtime.alive == 0) {
        return nullptr;
    }
    if (runtime.waiting && runtime.waiting == runtime.alive) {
        open_barrier();
        return runnable(0);
    }
    for (unsigned other = 0; warp.waiting && other < warp_size; ++other) {
        if (warp.waiting >> other & 1) {
            const Thread& thread = thread_numbered(warp_number * warp_size + other);
            open_warp(warp_number, thread.lanes, thread.line);
        }
    }
    Thread* next = runnable(position_of(self) + 1);
    if (next == nullptr) {
        fail_stuck();
    }
    return next;
}

void fiber_main() {
    for (;;) {
        runtime.body();
        Thread& self = *runtime.current;
        Thread* next = end_thread(self);
        if (next == nullptr) {
            leave(self);
        }
        bool fresh = next->state == State::unstarted;
        make_current(*next);
        if (fresh) {
            next->stack = self.stack;
        } else {
            runtime.stacks.release(self.stack);
            switch_context(self.context, next->context);
        }
    }
}

inline void line_up(dim3 size) {
    runtime.count = runtime.alive = size.x * size.y * size.z;
    runtime.waiting = runtime.ayes = 0;
    for (unsigned number = 0; number < runtime.count; ++number) {
        Thread& thread = thread_numbered(number);
        thread.number = number;
        thread.index = {number % size.x, number / size.x % size.y, number / (size.x * size.y)};
        thread.state = State::unstarted;
    }
    for (unsigned warp = 0; warp * warp_size < runtime.count; ++warp) {
        unsigned lanes = runtime.count - warp * warp_size;
        runtime.warps[warp] = {lanes < warp_size ? (1u << lanes) - 1 : ~0u, 0};
    }
}

// Runs every thread of the current block to its end. False where one failed; the reason is in `runtime`.
inline bool run_block() {
    line_up(runtime.block_size);
    runtime.stacks.clear();
    runtime.failed = false;
    Thread& first = runtime.threads[0];
    make_current(first);
    first.stack = runtime.stacks.take();
    runtime.stacks.enter(first.context, first.stack, fiber_main);
    switch_context(runtime.main, first.context);
    return !runtime.failed;
}

// What the dynamic loader calls a thread-local variable, and its function that finds (and, at first, makes) it.
struct LocalIndex {
    unsigned long module, offset;
};
extern "C" void* __tls_get_addr(LocalIndex*);

// Of all kernels of a file together, each of which a device gives 48 KiB: no more is asked of the system.
constexpr size_t max_static_shared = 1 << 20;

struct SharedMemory {
    char* begin;  // null where there is none, or too much
    size_t bytes;
};

// The candidate's __shared__ variables: all the thread-local data of the shared object that this code is in.
inline int find_shared(struct dl_phdr_info* object, size_t, void* result) {
    bool ours = false;
    size_t bytes = 0;
    ElfW(Addr) here = reinterpret_cast<ElfW(Addr)>(&find_shared);
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const ElfW(Phdr)& header = object->dlpi_phdr[i];
        ours |= header.p_type == PT_LOAD && here - object->dlpi_addr - header.p_vaddr < header.p_memsz;
        bytes = header.p_type == PT_TLS ? header.p_memsz : bytes;
    }
    if (ours) {
        static_cast<SharedMemory*>(result)->bytes = bytes;
    }
    if (ours && bytes && bytes <= max_static_shared) {
        LocalIndex first = {object->dlpi_tls_modid, 0};
        static_cast<SharedMemory*>(result)->begin = static_cast<char*>(__tls_get_addr(&first));
    }
    return ours;
}

inline size_t whole_pages(size_t bytes) {
    size_t page = Stacks::page();
    return (bytes + page - 1) / page * page;
}

// Leaves the pages beyond the launch's dynamic shared memory without access.
inline bool bound_dynamic_shared(size_t bytes) {
    size_t open = whole_pages(bytes);
    return mprotect(dynamic_shared, sizeof dynamic_shared, PROT_READ | PROT_WRITE) == 0 &&
           mprotect(dynamic_shared + open, sizeof dynamic_shared - open, PROT_NONE) == 0;
}

inline bool written_beyond(size_t bytes) {
    for (size_t i = bytes; i < whole_pages(bytes); ++i) {
        if (dynamic_shared[i] != 0xff) {
            return true;
        }
    }
    return false;
}

inline const char* refuse(const char* reason) {
    snprintf(runtime.reason, sizeof runtime.reason, "%s", reason);
    return runtime.reason;
}

struct Launch {
    const void* parameters;
    const unsigned *grid, *block;
    unsigned shared_bytes;
    bool backwards;
    unsigned first, step;  // of all the blocks these: first, first + step, …
};

template <class Parameters>
const Parameters& parameters() {
    return *static_cast<const Parameters*>(runtime.parameters);
}

// Runs `body` as every thread of the launch's blocks. Null, or why it failed; valid until the next launch.
inline const char* launch(void (*body)(), Launch call) {
    const unsigned *grid = call.grid, *block = call.block;
    unsigned long long threads = 1ull * block[0] * block[1] * block[2];
    if (threads == 0 || threads > max_threads || call.shared_bytes > max_dynamic_shared) {
        return refuse("a launch beyond the limits of 1024 threads and 256 KiB of dynamic shared memory");
    }
    if (!runtime.stacks.reserve(static_cast<unsigned>(threads)) || !bound_dynamic_shared(call.shared_bytes)) {
        return refuse("no memory for the stacks of the block's threads");
    }
    SharedMemory shared = {nullptr, 0};
    dl_iterate_phdr(find_shared, &shared);
    if (shared.bytes > max_static_shared) {
        return refuse("its __shared__ variables have more than 1 MiB together; a device gives each kernel 48 KiB");
    }
    runtime.body = body;
    runtime.parameters = call.parameters;
    runtime.backwards = call.backwards;
    runtime.grid_size = {grid[0], grid[1], grid[2]};
    runtime.block_size = {block[0], block[1], block[2]};
    unsigned long long blocks = 1ull * grid[0] * grid[1] * grid[2];
    for (unsigned long long i = call.first; i < blocks; i += call.step) {
        unsigned long long number = call.backwards ? blocks - 1 - i : i;
        runtime.block_index = {static_cast<unsigned>(number % grid[0]),
                               static_cast<unsigned>(number / grid[0] % grid[1]),
                               static_cast<unsigned>(number / grid[0] / grid[1])};
        memset(shared.begin, 0xff, shared.bytes);
        memset(dynamic_shared, 0xff, whole_pages(call.shared_bytes));
        if (!run_block()) {
            return runtime.reason;
        }
        if (written_beyond(call.shared_bytes)) {
            return refuse("a block wrote beyond its dynamic shared memory");
        }
    }
    return nullptr;
}

// Leaves nothing of earlier launches on the threads' stacks, nor in what is noted of threads: a candidate that knows
// where `threadIdx` lies could write there too.
inline void forget() {
    Stacks stacks = runtime.stacks;
    stacks.poison();
    memset(stacks.released, 0, sizeof stacks.released);
    memset(&runtime, 0, sizeof runtime);
    runtime.stacks = stacks;
}

// The C library's functions that this runtime, or g++ for it, leans on: by this a binary names each of them, as one of
// the library's or as the candidate's own, which is refused.
__attribute__((used)) static const void* const leant_on[] = {
    reinterpret_cast<const void*>(&memset), reinterpret_cast<const void*>(&memcpy),
    reinterpret_cast<const void*>(&memmove), reinterpret_cast<const void*>(&memcmp)};

__attribute__((destructor)) static void unload() { runtime.stacks.unmap(); }

}  // namespace evo
}  // namespace
