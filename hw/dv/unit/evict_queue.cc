// SPDX-License-Identifier: MIT OR Apache-2.0
// EvictQ against a list of evictions: outcomes in the order of the pushes, although completions come in any order; what is on
// its way is known by its identifier.
#include <deque>
#include <vector>

#include "VEvictQueue.h"
#include "bench.h"

// Compiled with DEPTH for queues of another depth than that of the other units.
#ifndef DEPTH
#define DEPTH 4
#endif

using namespace farmem;

struct Entry {
    enum State { kWaiting, kUnderWay, kDone, kFailed } state;
    uint64_t id, frame, slot;
};

static void test(uint64_t seed) {
    constexpr size_t kDepth = DEPTH;
    bool full = false;
    Random random(seed);
    Held<VEvictQueue> held;
    VEvictQueue &dut = held;
    reset(dut);
    std::deque<Entry> model;
    uint64_t next = 1;
    auto id_of = [](uint64_t n) { return spread(n, 28); };
    auto frame_of = [](uint64_t n) { return spread(n + 1000, 36); };
    auto unfinished = [](const Entry &e) { return e.state == Entry::kWaiting || e.state == Entry::kUnderWay; };
    for (int i = 0; i < 1000 * DEPTH; i++) {
        bool filling = i / (60 * DEPTH / 4) % 2;
        // A failed page may be evicted again at once, from another place of the queue.
        uint64_t id = id_of(next);
        for (const Entry &e : model)
            if (e.state == Entry::kFailed && random.one_in(2)) id = e.id;
        for (const Entry &e : model)
            if (e.id == id && unfinished(e)) id = id_of(next);
        dut.io_push_valid = random.below(4) < (filling ? 3 : 1);
        dut.io_push_bits_id = id;
        dut.io_push_bits_frame = frame_of(next);
        dut.io_issue_ready = random.one_in(2);
        dut.io_pop_ready = random.below(4) < (filling ? 1 : 3);
        std::vector<Entry *> under_way;
        for (Entry &e : model)
            if (e.state == Entry::kUnderWay) under_way.push_back(&e);
        Entry *ending = !under_way.empty() && random.one_in(4) ? under_way[random.below(under_way.size())] : nullptr;
        bool fails = random.one_in(4);
        dut.io_complete_valid = ending != nullptr;
        dut.io_complete_bits_slot = ending ? ending->slot : 0;
        dut.io_complete_bits_failed = fails;
        uint64_t query = random.one_in(2) || model.empty() ? id_of(next + 5) : model[random.below(model.size())].id;
        dut.io_queryId = query;
        settle(dut);

        size_t open = 0;
        bool pending = false, failed = false;
        Entry *waiting = nullptr;
        for (Entry &e : model) {
            open += unfinished(e);
            pending |= e.id == query && unfinished(e);
            failed |= e.id == query && e.state == Entry::kFailed;
            if (e.state == Entry::kWaiting && !waiting) waiting = &e;
        }
        CHECK(dut.io_count == model.size());
        CHECK(dut.io_unfinished == open);
        CHECK(dut.io_push_ready == (model.size() < kDepth));
        CHECK(dut.io_queryPending == pending);
        CHECK(dut.io_queryFailed == failed);
        CHECK(dut.io_issue_valid == (waiting != nullptr));
        if (waiting) CHECK(dut.io_issue_bits_id == waiting->id && dut.io_issue_bits_frame == waiting->frame);
        bool ready = !model.empty() && !unfinished(model.front());
        CHECK(dut.io_pop_valid == ready);
        if (ready) {
            CHECK(dut.io_pop_bits_id == model.front().id);
            CHECK(dut.io_pop_bits_failed == (model.front().state == Entry::kFailed));
        }
        if (waiting && dut.io_issue_ready) {
            waiting->state = Entry::kUnderWay;
            waiting->slot = dut.io_issueSlot;
        }
        if (ending) ending->state = fails ? Entry::kFailed : Entry::kDone;
        bool push = dut.io_push_valid && dut.io_push_ready;
        if (ready && dut.io_pop_ready) model.pop_front();
        if (push) {
            model.push_back({Entry::kWaiting, id, frame_of(next), 0});
            next++;
        }
        full |= model.size() == kDepth;
        edge(dut);
    }
    CHECK(full);
}

int main(int argc, char **argv) { return run_seeds(argc, argv, 20, test); }
