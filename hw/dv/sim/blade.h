// The far side of the link: a blade that keeps pages by identifier.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

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
        receiving_ = false;
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
            receiving_ = kind(head_) == kWrite;
            if (kind(head_) == kRead) serve_read(now);
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
    enum Kind : uint64_t { kRead = 1, kWrite = 2, kReadDone = 3, kWriteDone = 4 };
    struct Answer {
        std::vector<Flit> flits;
    };

    static uint64_t kind(uint64_t head) { return head >> 60; }
    static uint64_t tag(uint64_t head) { return head >> 40 & 0xffff; }
    static uint64_t id(uint64_t head) { return head & 0xffffffffff; }
    static uint64_t answer_head(uint64_t kind, bool failed, uint64_t tag) {
        return kind << 60 | uint64_t{failed} << 56 | tag << 40;
    }
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
        const Page *page = find(id(head_));
        bool failed = use(faults.fail) || !page;
        std::vector<Flit> flits{{true, answer_head(kReadDone, failed, tag(head_))}};
        if (!failed) {
            unsigned words = use(faults.cut_short) ? 100 : kPageWords;
            for (unsigned i = 0; i < words; i++) flits.push_back({false, (*page)[i]});
        }
        answer(std::move(flits), now);
    }

    void serve_write(uint64_t now) {
        writes++;
        if (use(faults.lose)) return;
        bool failed = use(faults.fail);
        if (!failed) pages_[id(head_)] = incoming_;
        answer({{true, answer_head(kWriteDone, failed, tag(head_))}}, now);
    }

    void answer(std::vector<Flit> flits, uint64_t now) {
        uint64_t due = head_at_ + settings.latency_cycles;
        if (settings.jitter_cycles) due += next_random() % settings.jitter_cycles;
        if (use(faults.hold)) due += faults.hold_cycles;
        uint64_t duration = (flits.size() - 1) * settings.cycles_per_flit;
        uint64_t begin = due > now + duration ? due - duration : now + 1;
        answers_.emplace(begin, Answer{std::move(flits)});
    }

    void begin(uint64_t now) {
        if (answers_.empty() || answers_.begin()->first > now) return;
        auto first = answers_.begin();
        for (const Flit &flit : first->second.flits) sending_.push_back(flit);
        answers_.erase(first);
    }

    std::map<uint64_t, Page> pages_;
    bool receiving_ = false;
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
