// The C++ wrapper: scopes end permits and locks, also by an exception.
#include "check.h"

#include <leeward.hpp>
#include <mutex>

static lw_options options() {
    lw_options of{};
    of.slo_ns = 1000000000;
    return of;
}

int main() {
    leeward::gate gate(options());
    leeward::mutex counter("scopes: counter");
    try {
        leeward::permit permit = gate.arrive({});
        CHECK(permit);
        EQUAL(LW_OK, permit.enter());
        std::lock_guard<leeward::mutex> guard(counter);
        CHECK(!counter.try_lock());
        throw std::runtime_error("as asked");
    } catch (const std::runtime_error &) {
    }
    CHECK(counter.lock_within());
    counter.unlock();
    leeward::permit first = gate.arrive({}), second;
    second = std::move(first);
    CHECK(second && !first);
    EQUAL(LW_OK, second.finish());
    EQUAL(LW_E_STATE, second.finish());
    lw_arrival entered{};
    entered.flags = LW_ARRIVE_ENTER;
    leeward::permit again;
    for (int round = 0; round < 3; round++) {
        again = gate.arrive(entered); // Ends the one before.
        CHECK(again);
    }
    EQUAL(LW_OK, again.finish());
    lw_arrival late{};
    late.waited_ns = 2000000000;
    leeward::permit rejected = gate.arrive(late);
    CHECK(!rejected && std::string(rejected.reason()) == "late");
    CHECK(gate.explain(rejected.info().decision).size() > 20);
    CHECK(gate.stats_json().find("\"abandoned\":3") != std::string::npos);
    try {
        gate.explain(12345678);
        CHECK(!"an unknown decision");
    } catch (const leeward::error &failure) {
        EQUAL(LW_E_ARGUMENT, failure.code);
    }
    lw_options wrong{};
    try {
        leeward::gate none(wrong);
        CHECK(!"an objective of nothing");
    } catch (const leeward::error &failure) {
        EQUAL(LW_E_ARGUMENT, failure.code);
    }
    std::puts("as it should be");
}
