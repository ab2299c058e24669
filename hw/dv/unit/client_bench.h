// SPDX-License-Identifier: MIT OR Apache-2.0
// The client between a program that asks for one page after the other, and a blade whose answers the test makes.
#pragma once

#include "../sim/packet.h"
#include "bench.h"

namespace farmem {

// `Client` is a model of the client, at some depth and with some tags.
template <class Client> class ClientBench {
  public:
    ClientBench() {
        reset(dut_);
        dut_.io_timeout = 2000;
        dut_.io_blocks_read_ready = 1;
        dut_.io_blocks_write_ready = 1;
        dut_.io_link_request_ready = 1;
    }

    // Software asks for a page; returns the head of the request.
    uint64_t ask() {
        offer();
        for (unsigned i = 0; i < 100; i++) {
            settle(dut_);
            bool head = dut_.io_link_request_valid && dut_.io_link_request_bits_head;
            uint64_t word = dut_.io_link_request_bits_data;
            edge(dut_);
            if (!head) continue;
            // The identifier follows. Before it is sent the client believes no answer.
            for (unsigned j = 0; j < 2; j++) {
                settle(dut_);
                edge(dut_);
            }
            return word;
        }
        CHECK(!"a request was sent");
        return 0;
    }

    // Software's order is taken.
    void offer() {
        dut_.io_software_valid = 1;
        dut_.io_software_bits_write = 0;
        dut_.io_software_bits_id = 7;
        dut_.io_software_bits_frame = kFrame;
        for (settle(dut_); !dut_.io_software_ready; settle(dut_)) edge(dut_);
        edge(dut_);
        dut_.io_software_valid = 0;
    }

    bool spent() const { return dut_.io_spent; }

    // Whether a request ends without success, and nothing of it is sent.
    bool fails_unsent() {
        offer();
        for (unsigned i = 0; i < 5000; i++) {
            settle(dut_);
            if (dut_.io_link_request_valid) return false;
            bool done = dut_.io_softwareDone_valid;
            if (done) CHECK(!succeeded());
            edge(dut_);
            if (done) return true;
        }
        return false;
    }

    void await_end(bool ok) {
        for (unsigned i = 0; i < 5000; i++) {
            settle(dut_);
            CHECK(!dut_.io_blocks_write_valid);
            bool done = dut_.io_softwareDone_valid;
            if (done) CHECK(succeeded() == ok);
            edge(dut_);
            if (done) return;
        }
        CHECK(!"the request ended");
    }

    // Offers a flit until it is taken. Says whether a request ended by it.
    bool answer(bool head, uint64_t word) {
        dut_.io_link_response_valid = 1;
        dut_.io_link_response_bits_head = head;
        dut_.io_link_response_bits_data = word;
        bool taken = false, done = false;
        while (!taken) {
            settle(dut_);
            taken = dut_.io_link_response_ready;
            done |= dut_.io_softwareDone_valid;
            CHECK(!dut_.io_blocks_write_valid);
            edge(dut_);
        }
        dut_.io_link_response_valid = 0;
        return done;
    }

  private:
    static constexpr uint64_t kFrame = 0x80100;
    bool succeeded() const { return dut_.io_softwareDone_bits_ok; }
    Held<Client> held_;
    Client &dut_ = held_;
};

} // namespace farmem
