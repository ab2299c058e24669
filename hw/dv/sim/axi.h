// SPDX-License-Identifier: MIT OR Apache-2.0
// AXI4 slaves: what is common to local memory and to the simulator's devices.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

namespace farmem {

// Signals of the master, as sampled before a clock edge.
struct AxiMaster {
    bool aw_valid, w_valid, b_ready, ar_valid, r_ready;
    uint64_t aw_id, aw_address, aw_length;
    uint64_t w_data, w_strobe;
    bool w_last;
    uint64_t ar_id, ar_address, ar_length;
};

// Serves requests in order, one beat in each cycle, each after a fixed latency. Bursts are incrementing, beats of eight bytes. What is to be
// written may come with its address, or before it.
class AxiSlave {
  public:
    using Read = std::function<uint64_t(uint64_t address)>;
    using Write = std::function<void(uint64_t address, uint64_t data, uint8_t strobe)>;
    // Whether an access to this address ends in an error.
    using Fails = std::function<bool(uint64_t address)>;

    AxiSlave(uint64_t latency_cycles, Read read, Write write, Fails fails)
        : latency_cycles_(latency_cycles), read_(std::move(read)), write_(std::move(write)), fails_(std::move(fails)) {}

    bool aw_ready() const { return writes_.size() < kQueue; }
    bool w_ready() const { return beats_.size() < kQueue; }
    bool ar_ready() const { return reads_.size() < kQueue; }
    bool b_valid(uint64_t now) const { return !writes_.empty() && writes_.front().complete && now >= writes_.front().due; }
    uint64_t b_id() const { return writes_.empty() ? 0 : writes_.front().id; }
    bool r_valid(uint64_t now) const { return !reads_.empty() && now >= reads_.front().due; }
    uint64_t r_id() const { return reads_.empty() ? 0 : reads_.front().id; }
    uint64_t b_response() const { return !writes_.empty() && writes_.front().failed ? kSlaveError : kOkay; }
    uint64_t r_response() const { return !reads_.empty() && fails_(reads_.front().address) ? kSlaveError : kOkay; }
    bool r_last() const { return !reads_.empty() && reads_.front().left == 0; }
    // Devices may act on a read: it happens once, when the beat is first offered.
    uint64_t r_data(uint64_t now) {
        if (!r_valid(now)) return 0;
        if (!fetched_) {
            data_ = read_(reads_.front().address & ~uint64_t{7});
            fetched_ = true;
        }
        return data_;
    }

    void clock(const AxiMaster &m, uint64_t now) {
        // What was offered in this cycle is judged before anything changes.
        bool b_fire = b_valid(now) && m.b_ready;
        bool r_fire = r_valid(now) && m.r_ready;
        bool w_fire = w_ready() && m.w_valid;
        bool aw_fire = aw_ready() && m.aw_valid;
        bool ar_fire = ar_ready() && m.ar_valid;
        if (b_fire) writes_.pop_front();
        if (aw_fire) writes_.push_back({m.aw_id, m.aw_address, m.aw_length, 0, false, false});
        if (w_fire) beats_.push_back({m.w_data, m.w_strobe, m.w_last});
        if (Burst *burst = beats_.empty() ? nullptr : accepting()) {
            Beat beat = beats_.front();
            beats_.pop_front();
            if (fails_(burst->address)) burst->failed = true;
            else write_(burst->address & ~uint64_t{7}, beat.data, beat.strobe);
            burst->address += 8;
            if (beat.last) {
                burst->complete = true;
                burst->due = now + latency_cycles_;
            }
        }
        if (r_fire) {
            fetched_ = false;
            Burst &burst = reads_.front();
            if (burst.left == 0) reads_.pop_front();
            else {
                burst.left--;
                burst.address += 8;
            }
        }
        if (ar_fire) reads_.push_back({m.ar_id, m.ar_address, m.ar_length, now + latency_cycles_, true, false});
    }

    void reset() {
        reads_.clear();
        writes_.clear();
        beats_.clear();
        fetched_ = false;
    }

  private:
    static constexpr unsigned kQueue = 16;
    static constexpr uint64_t kOkay = 0, kSlaveError = 2;
    struct Burst {
        uint64_t id, address, left, due;
        bool complete, failed;
    };
    struct Beat {
        uint64_t data;
        uint8_t strobe;
        bool last;
    };
    // The burst that the next beat belongs to.
    Burst *accepting() {
        for (Burst &burst : writes_)
            if (!burst.complete) return &burst;
        return nullptr;
    }

    uint64_t latency_cycles_;
    Read read_;
    Write write_;
    Fails fails_;
    std::deque<Burst> reads_, writes_;
    std::deque<Beat> beats_;
    bool fetched_ = false;
    uint64_t data_ = 0;
};

} // namespace farmem
