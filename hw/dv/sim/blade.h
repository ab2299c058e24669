// SPDX-License-Identifier: MIT OR Apache-2.0
// The far side of the link: a blade that keeps pages by identifier.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "packet.h"

namespace farmem {

constexpr unsigned kPageWords = 512;
using Page = std::array<uint64_t, kPageWords>;

struct Flit {
    bool head;
    uint64_t data;
};

// Latency counts from the head of the request to the last flit of the response, on an idle link: constant, as in the paper's
// evaluation. Bandwidth is in cycles for each flit.
struct BladeSettings {
    uint64_t latency_cycles = 12800;
    uint64_t cycles_per_flit = 1;
    // Adds up to so many cycles to each request, from a generator with a fixed seed: answers change places.
    uint64_t jitter_cycles = 0;
    uint64_t jitter_seed = 1;
};

// What may go wrong, each for the next so many requests that it fits.
struct BladeFaults {
    uint64_t fail = 0;      // answer with a failure
    uint64_t lose = 0;      // do nothing, answer nothing
    uint64_t cut_short = 0; // of a page, send the first hundred words only
    uint64_t hold = 0;      // answer, but `hold_cycles` later
    uint64_t hold_cycles = 0;
    uint64_t refuse = 0;    // answer a write with a failure
    uint64_t lie = 0;       // answer, but also with packets that nobody asked for
    uint64_t early = 0;     // confirm a write before its words have come, and do not do it
};

class Blade {
  public:
    explicit Blade(const BladeSettings &settings) : settings(settings), random_(settings.jitter_seed) {}

    BladeSettings settings;
    BladeFaults faults;
    uint64_t reads = 0;
    uint64_t writes = 0;

    // The link went down: what was under way is forgotten, stored pages stay.
    void reset_link() {
        receiving_ = expecting_id_ = false;
        answers_.clear();
        sending_.clear();
        send_at_ = 0;
    }

    const Page *find(uint64_t id) const {
        auto it = pages_.find(id);
        return it == pages_.end() ? nullptr : &it->second;
    }

    void store(uint64_t id, const Page &page) { pages_[id] = page; }

    // A flit arrives.
    void receive(const Flit &flit, uint64_t now) {
        if (flit.head) {
            head_ = flit.data;
            head_at_ = now;
            words_ = 0;
            receiving_ = false;
            expecting_id_ = packet::kind(head_) == packet::kRead || packet::kind(head_) == packet::kWrite;
            if (packet::kind(head_) == packet::kWrite && use(faults.early)) {
                expecting_id_ = false;
                answers_.emplace(now + 1, Answer{{{true, packet::answer(packet::kWriteDone, false, packet::tag(head_))}}});
            }
            return;
        }
        if (expecting_id_) {
            expecting_id_ = false;
            id_ = flit.data;
            receiving_ = packet::kind(head_) == packet::kWrite;
            if (!receiving_) serve_read(now);
            return;
        }
        if (!receiving_) return;
        incoming_[words_++] = flit.data;
        if (words_ == kPageWords) {
            receiving_ = false;
            serve_write(now);
        }
    }

    // The flit to offer in this cycle, if there is one.
    const Flit *offer(uint64_t now) {
        if (sending_.empty()) begin(now);
        return !sending_.empty() && now >= send_at_ ? &sending_.front() : nullptr;
    }

    void taken(uint64_t now) {
        sending_.pop_front();
        send_at_ = now + settings.cycles_per_flit;
    }

  private:
    struct Answer {
        std::vector<Flit> flits;
    };

    static bool use(uint64_t &left) { return left && left--; }

    uint64_t next_random() {
        random_ ^= random_ << 13;
        random_ ^= random_ >> 7;
        random_ ^= random_ << 17;
        return random_;
    }

    void serve_read(uint64_t now) {
        reads++;
        if (use(faults.lose)) return;
        const Page *page = find(id_);
        bool failed = use(faults.fail) || !page;
        std::vector<Flit> flits{{true, packet::answer(packet::kReadDone, failed, packet::tag(head_))}};
        if (!failed) {
            unsigned words = use(faults.cut_short) ? 100 : kPageWords;
            for (unsigned i = 0; i < words; i++) flits.push_back({false, (*page)[i]});
        }
        answer(std::move(flits), now);
    }

    void serve_write(uint64_t now) {
        writes++;
        if (use(faults.lose)) return;
        bool failed = use(faults.fail) || use(faults.refuse);
        if (!failed) pages_[id_] = incoming_;
        answer({{true, packet::answer(packet::kWriteDone, failed, packet::tag(head_))}}, now);
    }

    void answer(std::vector<Flit> flits, uint64_t now) {
        uint64_t due = head_at_ + settings.latency_cycles;
        if (settings.jitter_cycles) due += next_random() % settings.jitter_cycles;
        if (use(faults.hold)) due += faults.hold_cycles;
        uint64_t duration = (flits.size() - 1) * settings.cycles_per_flit;
        uint64_t begin = due > now + duration ? due - duration : now + 1;
        if (use(faults.lie)) lie(flits, begin);
        answers_.emplace(begin, Answer{std::move(flits)});
    }

    // From here on a tag's bits are far from those of any other request that is under way.
    static constexpr unsigned kFarTagBit = 16;

    // Around the right answer: words without a head, the same tag with another kind, a tag of nobody, words beyond the page's last,
    // and the whole answer once more with other words.
    void lie(std::vector<Flit> &flits, uint64_t begin) {
        uint64_t tag = packet::tag(flits.front().data), kind = packet::kind(flits.front().data);
        std::vector<Flit> before, after;
        auto words = [this](std::vector<Flit> &to, unsigned count) {
            for (unsigned i = 0; i < count; i++) to.push_back({false, next_random()});
        };
        words(before, 3);
        before.push_back({true, packet::answer(kind == packet::kReadDone ? packet::kWriteDone : packet::kReadDone, false, tag)});
        words(before, 20);
        before.push_back({true, packet::answer(kind, false, tag ^ uint64_t{1} << (kFarTagBit + next_random() % 43))});
        words(before, 20);
        before.push_back({true, packet::answer(packet::kRead, false, tag)});
        words(after, 5);
        after.push_back(flits.front());
        words(after, kPageWords);
        answers_.emplace(begin, Answer{std::move(before)});
        flits.insert(flits.end(), after.begin(), after.end());
    }

    void begin(uint64_t now) {
        if (answers_.empty() || answers_.begin()->first > now) return;
        auto first = answers_.begin();
        for (const Flit &flit : first->second.flits) sending_.push_back(flit);
        answers_.erase(first);
    }

    std::map<uint64_t, Page> pages_;
    bool receiving_ = false;
    bool expecting_id_ = false;
    uint64_t id_ = 0;
    uint64_t head_ = 0;
    uint64_t head_at_ = 0;
    unsigned words_ = 0;
    Page incoming_;
    std::multimap<uint64_t, Answer> answers_;
    std::deque<Flit> sending_;
    uint64_t send_at_ = 0;
    uint64_t random_;
};

} // namespace farmem
