// SPDX-License-Identifier: MIT OR Apache-2.0
// The whole accelerator without its bus, between walkers, an operating system, a memory and a blade that behave at random.
//
// The model knows what every page must contain, who owns every frame, and in which order frames and pages pass the queues. Each
// byte of a page is compared when the entry that maps it is written. Requests to the blade fail, get lost, are cut short or late,
// and are answered with lies. The bus refuses blocks and entries: then nothing is mapped, and nothing of the frame is on the blade.
#include <array>
#include <deque>
#include <map>
#include <vector>

#include "../../sw/lib/pfa_registers.h"
#include "../sim/blade.h"
#include "VAcceleratorCore.h"
#include "bench.h"

using namespace farmem;

// Compiled with ENDURANCE: many fetches, one close to the other, from a blade that is near and lies more rarely.
#ifdef ENDURANCE
constexpr bool kEndurance = true;
#else
constexpr bool kEndurance = false;
#endif

namespace {

// What a seed runs for, and how often something may go wrong.
constexpr unsigned kCycles = kEndurance ? 1000000 : 60000, kFaultEvery = kEndurance ? 10000 : 4000;
constexpr unsigned kPages = 12, kFrames = 8, kPorts = 4, kTags = 4;
constexpr uint64_t kFirstFrame = 0x80100, kTable = 0x80000000, kBits = 0xff;
enum Register : uint64_t {
    kControl = PFA_CONTROL, kTimeout = PFA_TIMEOUT, kError = PFA_ERROR, kFreePush = PFA_FREE_PUSH, kNewPop = PFA_NEW_POP,
    kEvictPush = PFA_EVICT_PUSH, kFreePop = PFA_FREE_POP, kEvictPop = PFA_EVICT_POP, kFrameBase = PFA_FRAME_BASE,
    kFrameLimit = PFA_FRAME_LIMIT, kFrameLock = PFA_FRAME_LOCK, kBusError = PFA_BUS_ERROR, kNewContext = PFA_NEW_CONTEXT
};

uint64_t remote_entry(uint64_t id) { return id << 12 | (kBits & ~1u) << 2 | 4 | 2; }
uint64_t local_entry(uint64_t frame) { return frame << 10 | kBits; }
bool is_remote(uint64_t entry) { return (entry & 3) == 2; }
uint64_t id_of(unsigned page) { return 0x1234500 + page; }
uint64_t root_of(unsigned page) { return 0x77000 + page; }

class Bench {
  public:
    explicit Bench(uint64_t seed) : random_(seed), blade_(settings(seed)) {
        reset(dut_);
        for (unsigned f = 0; f < kFrames; f++) owned_.push_back(kFirstFrame + f);
        for (unsigned p = 0; p < kPages; p++) {
            for (auto &word : content_[p]) word = random_.word();
            blade_.store(id_of(p), content_[p]);
            table_[p] = remote_entry(id_of(p));
        }
        access(true, kFrameBase, kFirstFrame << 12);
        access(true, kFrameLimit, (kFirstFrame + kFrames) << 12);
        access(true, kFrameLock, 1);
        access(true, kTimeout, 6000);
        access(true, kControl, 1);
    }

    void run(unsigned cycles) {
        for (unsigned i = 0; i < cycles; i++) {
            if (i % kFaultEvery == kFaultEvery - 1 && random_.one_in(2)) inject();
            if (random_.one_in(20)) operate();
            cycle();
        }
        // Nothing may be stuck: without new faults of the blade everything comes to an end.
        blade_.faults = {};
        quiet_ = true;
        bus_errors_ = 0;
        for (unsigned i = 0; i < 40000 && busy(); i++) {
            if (i % 10 == 0) operate();
            cycle();
        }
        CHECK(!busy());
        CHECK(fetched_ > 5);
        CHECK(broken_ == 0 || access(false, kBusError) >> 63);
    }

    unsigned broken_ = 0;
    unsigned fetched_ = 0, refused_ = 0, evicted_ = 0, failed_ = 0;

  private:
    static BladeSettings settings(uint64_t seed) {
        BladeSettings s;
        s.latency_cycles = 600 + seed * 37 % 900;
        s.jitter_cycles = seed % 2 ? 2000 : 0;
        s.jitter_seed = seed * 2 + 1;
        s.cycles_per_flit = 1 + seed % 3;
        if (kEndurance) {
            s.latency_cycles = 530 + seed * 37 % 200;
            s.jitter_cycles = seed % 2 ? 300 : 0;
            s.cycles_per_flit = 1;
        }
        return s;
    }

    void inject() {
        if (random_.one_in(3)) bus_errors_ = 1;
        switch (random_.below(6)) {
        case 0: blade_.faults.fail = 1; break;
        case 1: blade_.faults.lose = 1; break;
        case 2: blade_.faults.cut_short = 1; break;
        case 3: blade_.faults.lie = 1; break;
        case 4: blade_.faults.early = 1; break;
        default:
            blade_.faults.hold = 1;
            blade_.faults.hold_cycles = 7000;
        }
    }

    bool busy() const {
        for (const Port &port : ports_)
            if (port.state != Port::kIdle) return true;
        return !evicting_.empty();
    }

    // One access to a register; takes a cycle.
    uint64_t access(bool write, uint64_t offset, uint64_t data = 0) {
        dut_.io_access_valid = 1;
        dut_.io_access_bits_write = write;
        dut_.io_access_bits_offset = offset;
        dut_.io_access_bits_whole = 1;
        dut_.io_access_bits_data = data;
        uint64_t result = cycle();
        dut_.io_access_valid = 0;
        return result;
    }

    // What the operating system does next.
    void operate() {
        switch (random_.below(random_.one_in(20) ? 6 : 5)) {
        case 0: // give a frame; the model counts one as gone a few cycles before the queue does
            if (!owned_.empty() && free_.size() < 3) {
                uint64_t frame = owned_.front();
                owned_.pop_front();
                free_.push_back(frame);
                access(true, kFreePush, frame << 12);
            }
            break;
        case 1: { // learn of a new page
            uint64_t context = access(false, kNewContext);
            uint64_t word = access(false, kNewPop);
            // The model knows of a page when its entry is written, the queue a few cycles later.
            if (word >> 63 == 0) {
                CHECK(new_.size() <= 1);
                break;
            }
            CHECK(!new_.empty());
            Fresh fresh = new_.front();
            new_.pop_front();
            CHECK((word & 0xfffffff) == id_of(fresh.page));
            if (context) CHECK(context == (uint64_t{1} << 63 | root_of(fresh.page)));
            CHECK((word >> 28 & 0x7ffffff) == fresh.page + 0x40000);
            break;
        }
        case 2: { // send a page away
            if (evicting_.size() >= 4 || quiet_) break;
            unsigned page = random_.below(kPages);
            if (is_remote(table_[page]) || known(page)) break;
            uint64_t frame = table_[page] >> 10;
            table_[page] = remote_entry(id_of(page));
            evicting_.push_back({page, frame});
            access(true, kEvictPush, frame | id_of(page) << 36);
            break;
        }
        case 3: { // learn of an eviction
            uint64_t word = access(false, kEvictPop);
            if (word >> 63 == 0) break;
            CHECK(!evicting_.empty());
            auto [page, frame] = evicting_.front();
            CHECK((word & 0xfffffff) == id_of(page));
            if (word >> 62 & 1) {
                // It stays until the page is mapped again.
                failed_++;
                CHECK(table_[page] == remote_entry(id_of(page)));
                table_[page] = local_entry(frame);
                access(true, kEvictPop);
                spoiled_frame_ = 0;
            } else {
                evicted_++;
                // What could not be read was not evicted.
                CHECK(frame != spoiled_frame_);
                owned_.push_back(frame);
            }
            evicting_.pop_front();
            break;
        }
        case 5: { // take a frame back, where no fetch may be using it
            access(true, kControl, 0);
            uint64_t word = access(false, kFreePop);
            access(true, kControl, 1);
            access(true, kError, 0);
            if (word >> 63 == 0) break;
            CHECK(!free_.empty() && (word & 0xfffffffff000) == free_.front() << 12);
            owned_.push_back(free_.front());
            free_.pop_front();
            break;
        }
        default: { // the program writes to a page that is here
            unsigned page = random_.below(kPages);
            if (is_remote(table_[page])) break;
            uint64_t value = random_.word();
            unsigned word = random_.below(kPageWords);
            content_[page][word] = value;
            memory_[(table_[page] >> 10) - kFirstFrame][word] = value;
        }
        }
    }

    // Pages that the system has not been told of yet may not be evicted: their frame is not known to it.
    bool known(unsigned page) const {
        for (const Fresh &fresh : new_)
            if (fresh.page == page) return true;
        return false;
    }

    struct Port {
        enum State { kIdle, kAsking, kWaiting } state = kIdle;
        unsigned page = 0;
        uint64_t entry = 0;
    };
    struct Fresh {
        unsigned page;
    };
    struct BlockRead {
        uint64_t address;
        unsigned word;
        uint64_t due;
        bool bad;
    };
    struct BlockWrite {
        uint64_t tag;
        bool bad;
    };

    uint64_t cycle() {
        drive();
        settle(dut_);
        uint64_t data = dut_.io_readData;
        observe();
        edge(dut_);
        return data;
    }

    void drive() {
        auto set = [this](unsigned i, auto &valid, auto &vpn, auto &pte, auto &address, auto &root) {
            Port &port = ports_[i];
            if (port.state == Port::kIdle && !quiet_ && random_.one_in(kEndurance ? 50 : 200)) {
                port.page = random_.below(kPages);
                port.entry = table_[port.page];
                if (is_remote(port.entry)) port.state = Port::kAsking;
            }
            valid = port.state == Port::kAsking;
            vpn = port.page + 0x40000;
            pte = port.entry;
            address = kTable + 8 * port.page;
            root = root_of(port.page);
        };
#define SET(h, s)                                                                                                       \
    set(2 * h + s, dut_.io_hooks_##h##_walks_##s##_valid, dut_.io_hooks_##h##_walks_##s##_bits_vpn,                     \
        dut_.io_hooks_##h##_walks_##s##_bits_pte, dut_.io_hooks_##h##_walks_##s##_bits_pteAddress,        \
        dut_.io_hooks_##h##_walks_##s##_bits_root)
        SET(0, 0); SET(0, 1); SET(1, 0); SET(1, 1);
#undef SET
        dut_.io_memory_request_ready = !word_pending_ && random_.one_in(2);
        dut_.io_memory_response_valid = word_pending_ && word_left_ == 0;
        dut_.io_memory_response_bits_data = word_data_;
        dut_.io_memory_response_bits_error = word_bad_;
        dut_.io_blocks_read_ready = random_.one_in(2);
        dut_.io_blocks_write_ready = !random_.one_in(kEndurance ? 12 : 3);
        read_tag_ = -1;
        dut_.io_blocks_readData_valid = 0;
        if (!reads_.empty() && random_.below(4)) {
            // Any of the reads under way may go on.
            auto it = reads_.begin();
            std::advance(it, random_.below(reads_.size()));
            if (g_now >= it->second.due) {
                read_tag_ = static_cast<int>(it->first);
                dut_.io_blocks_readData_valid = 1;
                dut_.io_blocks_readData_bits_tag = it->first;
                dut_.io_blocks_readData_bits_error = it->second.bad && it->second.word >= 5;
                dut_.io_blocks_readData_bits_word = at(it->second.address + 8 * it->second.word);
            }
        }
        written_tag_ = -1;
        dut_.io_blocks_written_valid = 0;
        if (!writes_.empty() && random_.one_in(3)) {
            size_t which = random_.below(writes_.size());
            written_tag_ = static_cast<int>(which);
            dut_.io_blocks_written_valid = 1;
            dut_.io_blocks_written_bits_tag = writes_[which].tag;
            dut_.io_blocks_written_bits_error = writes_[which].bad;
        }
        dut_.io_link_request_ready = !random_.one_in(kEndurance ? 12 : 5);
        const Flit *flit = blade_.offer(g_now);
        dut_.io_link_response_valid = flit != nullptr;
        dut_.io_link_response_bits_head = flit && flit->head;
        dut_.io_link_response_bits_data = flit ? flit->data : 0;
    }

    uint64_t &at(uint64_t address) {
        uint64_t frame = address >> 12;
        CHECK(frame >= kFirstFrame && frame < kFirstFrame + kFrames);
        return memory_[frame - kFirstFrame][address >> 3 & 511];
    }

    void observe() {
        auto hook = [this](unsigned i, bool ready, bool answered, bool refused) {
            Port &port = ports_[i];
            if (answered) {
                CHECK(port.state == Port::kWaiting);
                port.state = Port::kIdle;
                if (refused) refused_++;
            }
            if (port.state == Port::kAsking && ready) port.state = Port::kWaiting;
        };
#define HOOK(h, s)                                                                                                      \
    hook(2 * h + s, dut_.io_hooks_##h##_walks_##s##_ready, dut_.io_hooks_##h##_answers_##s##_valid,                     \
         dut_.io_hooks_##h##_answers_##s##_bits_refused)
        HOOK(0, 0); HOOK(0, 1); HOOK(1, 0); HOOK(1, 1);
#undef HOOK

        if (dut_.io_memory_response_valid) word_pending_ = false;
        else if (word_pending_) word_left_--;
        if (dut_.io_memory_request_valid && dut_.io_memory_request_ready) {
            unsigned page = (dut_.io_memory_request_bits_address - kTable) / 8;
            CHECK(page < kPages);
            word_bad_ = breaks();
            if (dut_.io_memory_request_bits_write && !word_bad_) map(page, dut_.io_memory_request_bits_data);
            word_data_ = table_[page];
            word_pending_ = true;
            word_left_ = random_.below(30);
        }
        if (read_tag_ >= 0 && ++reads_[read_tag_].word == 8) reads_.erase(read_tag_);
        if (dut_.io_blocks_read_valid && dut_.io_blocks_read_ready) {
            CHECK(!reads_.count(dut_.io_blocks_read_bits_tag));
            // Only frames that are being evicted may be read.
            bool leaving = false;
            for (const auto &[page, frame] : evicting_) leaving |= frame == dut_.io_blocks_read_bits_address >> 12;
            CHECK(leaving);
            reads_[dut_.io_blocks_read_bits_tag] = {dut_.io_blocks_read_bits_address, 0, g_now + random_.below(60), breaks()};
            if (reads_[dut_.io_blocks_read_bits_tag].bad) spoiled_frame_ = dut_.io_blocks_read_bits_address >> 12;
        }
        if (written_tag_ >= 0) writes_.erase(writes_.begin() + written_tag_);
        if (dut_.io_blocks_write_valid && dut_.io_blocks_write_ready) {
            uint64_t address = dut_.io_blocks_write_bits_address;
            // Only the frame that is next in the FreeQ may be written.
            CHECK(!free_.empty() && free_.front() == address >> 12);
            if (write_word_ == 0) write_bad_ = breaks();
            if (write_bad_) spoiled_write_ = true;
            else at(address + 8 * write_word_) = dut_.io_blocks_write_bits_word;
            if (++write_word_ == 8) {
                write_word_ = 0;
                writes_.push_back({dut_.io_blocks_write_bits_tag, write_bad_});
            }
        }
        if (dut_.io_link_response_valid && dut_.io_link_response_ready) blade_.taken(g_now);
        if (dut_.io_link_request_valid && dut_.io_link_request_ready)
            blade_.receive({static_cast<bool>(dut_.io_link_request_bits_head), dut_.io_link_request_bits_data}, g_now);
    }

    // Whether the bus answers this access with an error.
    bool breaks() {
        if (!bus_errors_ || !random_.one_in(40)) return false;
        bus_errors_--;
        broken_++;
        return true;
    }

    // The accelerator maps a page: it must be the oldest frame, hold every byte, and be mapped as the entry said.
    void map(unsigned page, uint64_t entry) {
        CHECK(is_remote(table_[page]));
        CHECK(!free_.empty());
        uint64_t frame = free_.front();
        free_.pop_front();
        CHECK(entry == local_entry(frame));
        CHECK(memory_[frame - kFirstFrame] == content_[page]);
        CHECK(writes_.empty() || written_tag_ >= 0);
        for (const auto &[other, leaving] : evicting_) CHECK(leaving != frame);
        table_[page] = entry;
        new_.push_back({page});
        CHECK(new_.size() <= 4);
        fetched_++;
    }

    Random random_;
    Held<VAcceleratorCore> held_;
    VAcceleratorCore &dut_ = held_;
    Blade blade_;
    bool quiet_ = false;
    std::array<Page, kPages> content_;
    std::array<Page, kFrames> memory_{};
    std::array<uint64_t, kPages> table_;
    std::array<Port, kPorts> ports_;
    std::deque<uint64_t> owned_, free_;
    std::deque<Fresh> new_;
    std::deque<std::pair<unsigned, uint64_t>> evicting_;
    bool word_pending_ = false;
    bool word_bad_ = false;
    unsigned bus_errors_ = 0;
    unsigned word_left_ = 0;
    uint64_t word_data_ = 0;
    std::map<uint64_t, BlockRead> reads_;
    std::vector<BlockWrite> writes_;
    bool write_bad_ = false, spoiled_write_ = false;
    uint64_t spoiled_frame_ = 0;
    unsigned write_word_ = 0;
    int read_tag_ = -1, written_tag_ = -1;
};

} // namespace

static unsigned g_broken, g_fetched, g_refused, g_evicted, g_failed;

static void test(uint64_t seed) {
    Bench bench(seed);
    bench.run(kCycles);
    g_fetched += bench.fetched_;
    g_refused += bench.refused_;
    g_evicted += bench.evicted_;
    g_failed += bench.failed_;
    g_broken += bench.broken_;
}

int main(int argc, char **argv) {
    int status = run_seeds(argc, argv, 12, test);
    std::printf("fetched %u, refused %u, evicted %u, evictions failed %u, errors of the bus %u\n", g_fetched, g_refused, g_evicted,
                g_failed, g_broken);
    return status;
}
