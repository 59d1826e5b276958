// A software model of what kernels/seed/blackwell.cu asks of the hardware, after the PTX ISA 9.2, chapter 9.7.16.
//
// It takes the place of the source's sections "instructions: …". What is asynchronous on the device is so here: products
// wait in a queue and overtake one another wherever the ISA (9.7.16.6.2) leaves it open; loads, stores and copies happen
// at once or as late as their wait allows, and threads dawdle after they have arrived. Shared and tensor memory begin as
// NaN. A wait that never ends, a phase that was missed, a wrong lane and what is still under way at a block's end are
// errors. Not modelled: fences, proxies and time.
#pragma once

#include "fibers.h"

namespace {

// ------------------------------------------------------------------------------------------------ barriers and copies

uint32_t shared_address(const void* pointer) { return uint32_t((const unsigned char*)pointer - arena); }
Barrier& known(uint64_t& barrier) {
    require(barriers.count(&barrier) == 1, "a barrier that nobody initialised");
    return barriers[&barrier];
}
void completed(Barrier& barrier) {
    require(barrier.pending >= 0, "more arrivals than a phase has");
    if (barrier.pending == 0 && barrier.bytes == 0) {
        barrier.pending = barrier.arrivals;
        ++barrier.phase;
    }
}
void initialise(uint64_t& barrier, int arrivals) { barriers[&barrier] = {arrivals, arrivals, 0, 0}; }
void count_arrival(uint64_t& barrier) { --known(barrier).pending; completed(known(barrier)); }
void arrive(uint64_t& barrier) { count_arrival(barrier); dawdle(); }
void arrive_and_expect(uint64_t& barrier, int bytes) { known(barrier).bytes += bytes; arrive(barrier); }
void await(uint64_t& barrier, int phase) {
    Barrier& awaited = known(barrier);
    require(awaited.phase <= phase + 1, "a phase was missed");
    wait_until([&awaited, phase] { return (awaited.phase & 1) != (phase & 1); });
    require(awaited.phase == phase + 1, "another phase was taken for this one");
}

struct Map { uint16_t* data; int columns, heads, length, batch, rows; };  // rows: of the box

// All 16-byte chunks of a box, with their place under the swizzle of 128 bytes; null beyond the end of the sequence.
template <class Body>
void each_chunk(const Map& map, int column, int head, int row, int batch, uint32_t shared, Body body) {
    const int64_t sequence = int64_t(batch) * map.length;
    require(shared % 1024 == 0, "a box at no multiple of 1024");
    require(column + 64 <= map.columns && head < map.heads && batch < map.batch && row >= 0, "a box outside the tensor");
    for (int r = 0; r < map.rows; ++r) {
        for (int c = 0; c < 8; ++c) {
            const int64_t at = ((sequence + row + r) * map.heads + head) * map.columns + column + c * 8;
            body(arena + shared + r * 128 + ((c ^ (r & 7)) << 4), row + r < map.length ? map.data + at : nullptr);
        }
    }
}
template <class Opaque>
Map opened(const Opaque& opaque) { Map map; memcpy(&map, &opaque, sizeof map); return map; }

template <class Opaque>
void load_box(uint32_t to, const Opaque& opaque, int column, int head, int row, int batch, uint64_t& barrier) {
    const Map map = opened(opaque);
    under_way.push_back({[=, &barrier] {
        each_chunk(map, column, head, row, batch, to, [](unsigned char* shared, const uint16_t* global) {
            if (global) memcpy(shared, global, 16);
            else memset(shared, 0, 16);
        });
        known(barrier).bytes -= map.rows * 128;
        completed(known(barrier));
    }, false, 0, false});
}
template <class Opaque>
void store_box(const Opaque& opaque, int column, int head, int row, int batch, uint32_t from) {
    const Map map = opened(opaque);
    current->copies.push_back([=] {
        each_chunk(map, column, head, row, batch, from, [](const unsigned char* shared, uint16_t* global) {
            if (global) memcpy(global, shared, 16);
        });
    });
}
void close_stores() {}
void await_closed_stores() { for (auto& copy : current->copies) copy(); current->copies.clear(); }
void write_shared(uint32_t to, const uint32_t (&words)[4]) { memcpy(arena + to, words, 16); }
void show_to_copies() {}
void show_barriers() {}
template <int REGISTERS>
void keep_registers() {}

// ------------------------------------------------------------------------------------------------------ tensor memory

void allocate_tensor_memory(uint32_t* to) {
    meet(16 + current->x / 32, 32);
    *to = 0;
    allocated = true;
}
void free_tensor_memory(uint32_t address) {
    meet(16 + current->x / 32, 32);
    require(address == 0 && under_way.empty(), "tensor memory freed while something is under way");
    allocated = false;
}
void fence_before() {}
void fence_after() {}

float widened(uint16_t bits) {
#if defined(EVO_BF16)
    return evo::Bf16::widen(bits);
#else
    return evo::Fp16::widen(bits);
#endif
}

// Element (mn, k) of a matrix in shared memory, by its descriptor (9.7.16.3, 9.7.16.4.1).
float element(uint64_t descriptor, bool n_major, unsigned mn, unsigned k) {
    require((descriptor >> 61) == 2 && (descriptor >> 46 & 7) == 1 && (descriptor >> 49 & 0xfff) == 0, "descriptor");
    const uint32_t start = (descriptor & 0x3fff) << 4, lead = (descriptor >> 16 & 0x3fff) << 4,
                   stride = (descriptor >> 32 & 0x3fff) << 4;
    const uint32_t offset = n_major ? mn / 64 * lead + mn % 64 * 2 + k / 8 * stride + k % 8 * 128
                                    : mn / 8 * stride + mn % 8 * 128 + k * 2;
    const uint32_t address = start + offset;
    uint16_t bits;
    memcpy(&bits, arena + (address ^ (address >> 7 & 7) << 4), 2);
    return widened(bits);
}

// d (+)= a b by the instruction descriptor (9.7.16.4.2): a and b as functions of (row, k) and (column, k).
void product(uint32_t d, std::function<float(unsigned, unsigned)> a, uint64_t b, uint32_t instruction, bool add) {
    const unsigned rows = (instruction >> 24 & 31) << 4, columns = (instruction >> 17 & 63) << 3;
    const bool n_major = instruction >> 16 & 1;
#if defined(EVO_BF16)
    const unsigned types = 1u << 4 | 1u << 7 | 1u << 10;
#else
    const unsigned types = 1u << 4;
#endif
    require((instruction & 0xe081ffffu & ~(1u << 16)) == types && rows == 128 && columns <= 256, "instruction");
    require(d >> 16 == 0 && d + columns <= 512 && allocated, "an accumulator outside tensor memory");
    std::vector<float> left(rows * 16), right(columns * 16);
    for (unsigned k = 0; k < 16; ++k) {
        for (unsigned row = 0; row < rows; ++row) left[row * 16 + k] = a(row, k);
        for (unsigned column = 0; column < columns; ++column) right[column * 16 + k] = element(b, n_major, column, k);
    }
    for (unsigned row = 0; row < rows; ++row) {
        for (unsigned column = 0; column < columns; ++column) {
            float sum = add ? tensor_memory[row][d + column] : 0.0f;
            for (unsigned k = 0; k < 16; ++k) sum += left[row * 16 + k] * right[column * 16 + k];
            tensor_memory[row][d + column] = sum;
        }
    }
}
void multiply(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, bool add) {
    under_way.push_back({[=] {
        product(d, [a](unsigned row, unsigned k) { return element(a, false, row, k); }, b, instruction, add);
    }, true, d, false});
}
void multiply_from_tensor_memory(uint32_t d, uint32_t a, uint64_t b, uint32_t instruction, bool add) {
    require(a + 8 <= 512, "probabilities outside tensor memory");
    under_way.push_back({[=] {
        auto half = [a](unsigned row, unsigned k) {
            return widened(uint16_t(__float_as_uint(tensor_memory[row][a + k / 2]) >> k % 2 * 16));
        };
        product(d, half, b, instruction, add);
    }, true, d, false});
}
void arrive_when_multiplied(uint64_t& barrier) {
    under_way.push_back({[&barrier] { count_arrival(barrier); }, true, 0, true});
}

float* own_columns(uint32_t address) {
    require(address >> 16 == current->x / 32 % 4 * 32 && (address & 0xffff) + 32 <= 512, "lanes of another warp");
    return &tensor_memory[(address >> 16) + current->x % 32][address & 0xffff];
}
void load_columns(float* to, uint32_t from) {
    const float* source = own_columns(from);
    for (int i = 0; i < 32; ++i) to[i] = NAN;
    current->loads.push_back({to, from, late() ? std::vector<float>() : std::vector<float>(source, source + 32)});
}
template <int N>
void await_loads(float (&)[N]) {
    wait_until([] { return true; });
    for (auto& load : current->loads)
        memcpy(load.to, load.early.empty() ? own_columns(load.from) : load.early.data(), 128);
    current->loads.clear();
}
void store_columns(uint32_t to, const uint32_t (&from)[32]) {
    std::vector<uint32_t> words(from, from + 32);
    float* target = own_columns(to);
    auto store = [=] { memcpy(target, words.data(), 128); };
    if (late()) current->stores.push_back(store);
    else store();
}
void await_stores() {
    wait_until([] { return true; });
    for (auto& store : current->stores) store();
    current->stores.clear();
}

}  // namespace
