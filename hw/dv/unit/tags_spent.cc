// SPDX-License-Identifier: MIT OR Apache-2.0
// A client with tags of nine bits, six of which are a sequence number: after 64 requests no tag is left that was never used. Then
// every request fails, and none is sent under a tag of before.
#include <set>

#include "VRemoteMemoryClientTags9.h"
#include "client_bench.h"

using namespace farmem;

int main(int argc, char **argv) {
    Verilated::commandArgs(argc, argv);
    ClientBench<VRemoteMemoryClientTags9> bench;
    std::set<uint64_t> tags;
    for (unsigned i = 0; i < 63; i++) {
        uint64_t tag = packet::tag(bench.ask());
        CHECK(tags.insert(tag).second);
        CHECK(!bench.spent());
        CHECK(bench.answer(true, packet::answer(packet::kReadDone, true, tag)));
    }
    // The last tag is sent, and its request can't be told from one that is late.
    CHECK(tags.insert(packet::tag(bench.ask())).second);
    CHECK(bench.spent());
    bench.await_end(false);
    for (unsigned i = 0; i < 10; i++) CHECK(bench.fails_unsent());
    std::printf("%zu tags, then none\n", tags.size());
    coverage_write();
    return 0;
}
