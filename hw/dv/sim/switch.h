// SPDX-License-Identifier: MIT OR Apache-2.0
// Between several clients and one blade: the blade's link carries one packet at a time in each direction, so clients wait for each other.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "blade.h"

namespace farmem {

// Requests: a client whose turn it is may begin a packet, and nobody else sends before its end. Answers: by the blade, in its order. Each
// client has identifiers of its own, and tags: the switch replaces both on the way.
class Switch {
  public:
    Switch(Blade &blade, unsigned ports) : blade_(blade), ports_(ports) {}

    // Once in each cycle, before anybody looks.
    void clock() {
        if (!owner_) turn_ = (turn_ + 1) % ports_;
    }

    bool accepts(unsigned port) const { return owner_.value_or(turn_) == port; }

    void receive(unsigned port, Flit flit, uint64_t now) {
        if (flit.head) {
            owner_.reset();
            uint64_t kind = packet::kind(flit.data);
            if (kind == packet::kRead || kind == packet::kWrite) {
                owner_ = port;
                words_left_ = 1 + (kind == packet::kWrite ? kPageWords : 0);
                id_follows_ = true;
            }
            uint16_t tag = next_tag_++;
            routes_[tag] = {static_cast<uint16_t>(port), packet::tag(flit.data), true};
            flit.data = packet::with_tag(flit.data, tag);
        } else {
            if (id_follows_) flit.data |= uint64_t{port} << kPortShift;
            id_follows_ = false;
            if (owner_ && --words_left_ == 0) owner_.reset();
        }
        blade_.receive(flit, now);
    }

    // The flit for a client, if there is one in this cycle.
    std::optional<Flit> offer(unsigned port, uint64_t now) {
        const Flit *flit = blade_.offer(now);
        if (!flit) return std::nullopt;
        if (flit->head) answering_ = packet::tag(flit->data) < routes_.size() ? routes_[packet::tag(flit->data)] : Route{};
        if (!answering_.alive) {
            blade_.taken(now);
            return std::nullopt;
        }
        if (answering_.port != port) return std::nullopt;
        return flit->head ? Flit{true, packet::with_tag(flit->data, answering_.tag)} : *flit;
    }

    void taken(uint64_t now) { blade_.taken(now); }

    // A client's link went down: what it asked for is nobody's any more.
    void reset(unsigned port) {
        if (ports_ == 1) blade_.reset_link();
        if (owner_ == port) owner_.reset();
        for (Route &route : routes_)
            if (route.port == port) route.alive = false;
        if (answering_.port == port) answering_.alive = false;
    }

    const Page *find(unsigned port, uint64_t id) const { return blade_.find(id | uint64_t{port} << kPortShift); }

  private:
    // Identifiers of clients have 28 bits.
    static constexpr unsigned kPortShift = 28;
    struct Route {
        uint16_t port = 0;
        uint64_t tag = 0;
        bool alive = false;
    };

    Blade &blade_;
    unsigned ports_;
    unsigned turn_ = 0;
    std::optional<unsigned> owner_;
    unsigned words_left_ = 0;
    bool id_follows_ = false;
    uint16_t next_tag_ = 0;
    std::array<Route, 65536> routes_;
    Route answering_;
};

} // namespace farmem
