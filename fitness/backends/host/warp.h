// The functions of a warp: lanes that wait for each other, and get each other's values.
#pragma once

namespace {
namespace evo {

// Of the warp's threads, the one that runs first.
inline unsigned first_position(unsigned warp) {
    unsigned last = (warp + 1) * warp_size - 1;
    unsigned number = !runtime.backwards ? warp * warp_size : last < runtime.count ? last : runtime.count - 1;
    return position_of(thread_numbered(number));
}

// Whether all the lanes have come to the same call; if so, each has its result and may run.
inline bool open_warp(unsigned warp_number, unsigned lanes, int line) {
    Warp& warp = runtime.warps[warp_number];
    unsigned awaited = lanes & warp.present;
    if (awaited & ~warp.waiting) {
        return false;
    }
    unsigned long long values[warp_size], ballot = 0;
    unsigned base = warp_number * warp_size;
    for (unsigned lane = 0; lane < warp_size; ++lane) {
        if (awaited >> lane & 1) {
            const Thread& thread = thread_numbered(base + lane);
            if (thread.lanes != lanes || thread.line != line) {
                return false;  // it waits elsewhere, perhaps for others that will still come
            }
            values[lane] = thread.value;
            ballot |= static_cast<unsigned long long>(thread.value != 0) << lane;
        }
    }
    for (unsigned lane = 0; lane < warp_size; ++lane) {
        if (awaited >> lane & 1) {
            Thread& thread = thread_numbered(base + lane);
            bool there = thread.source < warp_size && awaited >> thread.source & 1;
            thread.value = thread.source == vote ? ballot : there ? values[thread.source] : ~0ull;  // ~0: NaN
            thread.state = State::ready;
        }
    }
    warp.waiting &= ~awaited;
    return true;
}

// The value of lane `source`, or the ballot of all non-zero values.
inline unsigned long long meet_warp(int line, unsigned lanes, unsigned long long value, unsigned source) {
    Thread& self = *runtime.current;
    unsigned lane = self.number % warp_size, warp = self.number / warp_size;
    if (!(lanes >> lane & 1)) {
        fail("thread %u, lane %u, is not in the mask 0x%08x of its warp function at line %d", self.number, lane, lanes,
             line);
    }
    self.state = State::at_warp;
    self.line = line;
    self.lanes = lanes;
    self.source = source;
    self.value = value;
    runtime.warps[warp].waiting |= 1u << lane;
    bool open = open_warp(warp, lanes, line);
    give_way(self, open ? first_position(warp) : position_of(self) + 1);
    return self.value;
}

}  // namespace evo
}  // namespace
