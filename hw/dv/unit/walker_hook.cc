// SPDX-License-Identifier: MIT OR Apache-2.0
// The instruction side's hook between a TLB, a walker and a fetch unit that all behave at random. Every walk ends with one
// answer; ordinary answers pass in their own cycle; a wrong path fetches nothing and its answer is discarded one cycle ahead;
// after a fetch the walk is repeated for the same page.
#include "VWalkerHook.h"
#include "bench.h"

using namespace farmem;

static void test(uint64_t seed) {
    Random random(seed);
    Held<VWalkerHook> model;
    VWalkerHook &dut = model;
    reset(dut);
    enum Tlb { kIdle, kAsking, kWaiting } tlb = kIdle;
    enum Fetch { kNone, kFetching } fetch = kNone;
    uint64_t vpn = 0, walking = 0, fetch_left = 0, walk_left = 0, held = 0;
    bool walk = false, stale = false, asked = false, remote_page = false, discarded = false, fetched_page = false;
    unsigned answers = 0, walks = 0, fetches = 0, drops = 0, refusals = 0;
    for (int i = 0; i < 20000; i++) {
        if (tlb == kIdle && random.one_in(4)) {
            tlb = kAsking;
            vpn = random.below(1 << 27);
            remote_page = random.one_in(2);
            fetched_page = false;
        }
        bool wanted = !random.one_in(5);
        dut.io_walkValid = tlb == kAsking;
        dut.io_walkWanted = wanted;
        dut.io_walkVpn = vpn;
        dut.io_walkerReady = !walk && random.one_in(2);
        bool answer = walk && walk_left == 0;
        bool remote = remote_page && !fetched_page;
        dut.io_answerValid = answer;
        dut.io_answerRemote = answer && remote;
        // Entry, its address and the root table are whatever the walker says: they only have to come out as they went in.
        uint64_t pte = spread(vpn, 52) << 12 | 2, pte_address = spread(vpn, 53) << 3, root = spread(vpn, 36);
        dut.io_answerPte = pte;
        dut.io_answerPteAddress = pte_address;
        dut.io_root = root;
        dut.io_redirected = random.one_in(30);
        dut.io_settled = !dut.io_redirected && random.one_in(5);
        dut.io_fetch_ready = fetch == kNone && random.one_in(3);
        bool fetched = fetch == kFetching && fetch_left == 0;
        bool refused = fetched && random.one_in(4);
        dut.io_fetched_valid = fetched;
        dut.io_fetched_bits_refused = refused;
        settle(dut);

        // Invariants of each cycle.
        CHECK(!(dut.io_passAnswer && dut.io_faultAnswer));
        if (answer && !remote) CHECK(dut.io_passAnswer);
        if (answer && remote) CHECK(!dut.io_passAnswer && !dut.io_faultAnswer);
        if (refused) CHECK(dut.io_faultAnswer);
        if (dut.io_faultAnswer) CHECK(refused || discarded);
        if (dut.io_fetch_valid) {
            CHECK(dut.io_fetch_bits_vpn == vpn && dut.io_fetch_bits_root == root);
            CHECK(dut.io_fetch_bits_pteAddress == pte_address && dut.io_fetch_bits_pte == pte);
        }
        if (dut.io_walkerValid) CHECK(dut.io_walkerVpn == vpn);
        if (discarded) CHECK(dut.io_faultAnswer); // the answer follows at once
        if (held && dut.io_redirected) CHECK(!dut.io_fetch_valid);

        // What is fetched was never on a path that the pipeline has left.
        if (dut.io_fetch_valid && !asked) CHECK(!stale);
        asked = dut.io_fetch_valid;

        bool start = dut.io_walkerValid && dut.io_walkerReady && dut.io_walkerWanted;
        if (start && dut.io_walkReady) stale = false;
        stale |= dut.io_redirected;
        bool given_up = tlb == kAsking && dut.io_walkReady && !wanted;
        bool answered = dut.io_passAnswer || dut.io_faultAnswer;
        if (answered) {
            CHECK(tlb == kWaiting);
            answers++;
            tlb = kIdle;
            refusals += refused;
            drops += discarded;
        }
        if (tlb == kAsking && dut.io_walkReady) {
            tlb = given_up ? kIdle : kWaiting;
            walks += !given_up;
        }
        if (answer) walk = false;
        else if (walk) walk_left--;
        if (start) {
            CHECK(!walk);
            walk = true;
            walking = vpn;
            walk_left = random.below(8);
        }
        if (fetched) {
            fetch = kNone;
            fetched_page = !refused;
        } else if (fetch == kFetching) fetch_left--;
        if (dut.io_fetch_valid && dut.io_fetch_ready) {
            fetch = kFetching;
            fetch_left = random.below(20);
            fetches++;
        }
        discarded = dut.io_discard;
        held = answer && remote;
        edge(dut);
    }
    CHECK(answers + (tlb == kWaiting) == walks);
    CHECK(fetches > 50 && drops > 50 && refusals > 10);
    (void)walking;
}

int main(int argc, char **argv) { return run_seeds(argc, argv, 10, test); }
