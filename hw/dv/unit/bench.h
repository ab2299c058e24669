// SPDX-License-Identifier: MIT OR Apache-2.0
// What the unit tests share: a clock, random numbers with a seed that is shown, and checks.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "verilated.h"

double sc_time_stamp() { return 0; }

namespace farmem {

inline uint64_t g_now = 0;
inline uint64_t g_seed = 1;

#define CHECK(condition)                                                                                                \
    do {                                                                                                                \
        if (!(condition)) {                                                                                             \
            std::fprintf(stderr, "%s:%d: cycle %llu, seed %llu: not so: %s\n", __FILE__, __LINE__,                      \
                         (unsigned long long)farmem::g_now, (unsigned long long)farmem::g_seed, #condition);            \
            std::exit(1);                                                                                               \
        }                                                                                                               \
    } while (0)

class Random {
  public:
    explicit Random(uint64_t seed) : engine_(seed) {}
    uint64_t below(uint64_t bound) { return engine_() % bound; }
    bool one_in(uint64_t n) { return below(n) == 0; }
    uint64_t word() { return engine_(); }

  private:
    std::mt19937_64 engine_;
};

// Inputs are set, `settle` makes outputs follow, `edge` clocks.
template <class Model> void settle(Model &model) {
    model.clock = 0;
    model.eval();
}
template <class Model> void edge(Model &model) {
    model.clock = 1;
    model.eval();
    g_now++;
}
template <class Model> void reset(Model &model) {
    model.reset = 1;
    for (int i = 0; i < 3; i++) {
        settle(model);
        edge(model);
    }
    model.reset = 0;
}

// Runs `test(seed)` for so many seeds; the first argument chooses one.
template <class Test> int run_seeds(int argc, char **argv, uint64_t seeds, Test test) {
    Verilated::commandArgs(argc, argv);
    uint64_t first = 1, last = seeds;
    if (argc > 1 && argv[1][0] != '+') first = last = std::strtoull(argv[1], nullptr, 0);
    for (g_seed = first; g_seed <= last; g_seed++) test(g_seed);
    std::printf("%s: %llu seeds\n", argv[0], (unsigned long long)(last - first + 1));
    return 0;
}

} // namespace farmem
