// SPDX-License-Identifier: MIT OR Apache-2.0
// The client at its full depth, and an answer that comes long after its request has timed out.
//
// A tag once carried nine bits of sequence at this depth. So the answer to the first request matched the 513th, and its words went
// into the frame of that one. Here the late answer is offered again and again, after as many requests as any shorter sequence
// would need to come round: no word of it may reach memory.
#include "VRemoteMemoryClient.h"
#include "client_bench.h"

using namespace farmem;

static constexpr unsigned kRequests = 1 << 17;

int main(int argc, char **argv) {
    Verilated::commandArgs(argc, argv);
    ClientBench<VRemoteMemoryClient> bench;
    uint64_t lost = packet::tag(bench.ask());
    bench.await_end(false);
    for (unsigned i = 1; i <= kRequests; i++) {
        uint64_t tag = packet::tag(bench.ask());
        // The late answer, and some of its words. Whatever is under way goes on.
        if ((i & (i - 1)) == 0) {
            CHECK(!bench.answer(true, packet::answer(packet::kReadDone, false, lost)));
            for (unsigned word = 0; word < 16; word++) CHECK(!bench.answer(false, ~uint64_t{0}));
        }
        CHECK(tag != lost);
        CHECK(bench.answer(true, packet::answer(packet::kReadDone, true, tag)));
    }
    std::printf("%u requests after one whose answer is late\n", kRequests);
    coverage_write();
    return 0;
}
