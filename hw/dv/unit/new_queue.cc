// SPDX-License-Identifier: MIT OR Apache-2.0
// NewQ against a deque: address and identifier stay together, in order.
#include <deque>

#include "VNewQueue.h"
#include "bench.h"

// Compiled with DEPTH for queues of another depth than that of the other units.
#ifndef DEPTH
#define DEPTH 4
#endif

using namespace farmem;

struct Entry {
    uint64_t hart, vpn, id, root;
};

static void test(uint64_t seed) {
    constexpr size_t kDepth = DEPTH;
    bool full = false;
    Random random(seed);
    Held<VNewQueue> held;
    VNewQueue &dut = held;
    reset(dut);
    std::deque<Entry> model;
    for (int i = 0; i < 500 * DEPTH; i++) {
        bool filling = i / (50 * DEPTH / 4) % 2;
        Entry entry{random.below(256), random.below(1 << 27), random.below(1 << 28), random.below(uint64_t{1} << 36)};
        // The fetch unit's side of the contract: it offers only what fits.
        dut.io_enqueue_valid = model.size() < kDepth && random.below(4) < (filling ? 3 : 1);
        dut.io_enqueue_bits_hart = entry.hart;
        dut.io_enqueue_bits_vpn = entry.vpn;
        dut.io_enqueue_bits_id = entry.id;
        dut.io_enqueue_bits_root = entry.root;
        dut.io_dequeue_ready = random.below(4) < (filling ? 1 : 3);
        settle(dut);
        CHECK(dut.io_count == model.size());
        CHECK(dut.io_enqueue_ready == (model.size() < kDepth));
        CHECK(dut.io_dequeue_valid == !model.empty());
        if (!model.empty()) {
            CHECK(dut.io_dequeue_bits_hart == model.front().hart);
            CHECK(dut.io_dequeue_bits_vpn == model.front().vpn);
            CHECK(dut.io_dequeue_bits_id == model.front().id);
            CHECK(dut.io_dequeue_bits_root == model.front().root);
        }
        bool in = dut.io_enqueue_valid, out = dut.io_dequeue_valid && dut.io_dequeue_ready;
        if (out) model.pop_front();
        if (in) model.push_back(entry);
        full |= model.size() == kDepth;
        edge(dut);
    }
    CHECK(full);
}

int main(int argc, char **argv) { return run_seeds(argc, argv, 20, test); }
