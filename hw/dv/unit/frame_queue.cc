// SPDX-License-Identifier: MIT OR Apache-2.0
// FreeQ against a deque: same order, same counts, whatever the pace.
#include <deque>

#include "VFrameQueue.h"
#include "bench.h"

// Compiled with DEPTH for queues of another depth than that of the other units.
#ifndef DEPTH
#define DEPTH 4
#endif

using namespace farmem;

static void test(uint64_t seed) {
    constexpr size_t kDepth = DEPTH;
    bool full = false;
    Random random(seed);
    Held<VFrameQueue> held;
    VFrameQueue &dut = held;
    reset(dut);
    std::deque<uint64_t> model;
    uint64_t next = 1;
    for (int i = 0; i < 500 * DEPTH; i++) {
        // Phases that fill and phases that drain.
        bool filling = i / (50 * DEPTH / 4) % 2;
        dut.io_enqueue_valid = random.below(4) < (filling ? 3 : 1);
        dut.io_enqueue_bits = spread(next, 36);
        dut.io_dequeue_ready = random.below(4) < (filling ? 1 : 3);
        settle(dut);
        CHECK(dut.io_count == model.size());
        CHECK(dut.io_enqueue_ready == (model.size() < kDepth));
        CHECK(dut.io_dequeue_valid == !model.empty());
        if (!model.empty()) CHECK(dut.io_dequeue_bits == model.front());
        bool in = dut.io_enqueue_valid && dut.io_enqueue_ready, out = dut.io_dequeue_valid && dut.io_dequeue_ready;
        if (out) model.pop_front();
        if (in) model.push_back(spread(next++, 36));
        full |= model.size() == kDepth;
        edge(dut);
    }
    CHECK(full);
}

int main(int argc, char **argv) { return run_seeds(argc, argv, 20, test); }
